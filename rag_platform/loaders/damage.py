"""What is wrong with a file, in words of people: parsers raise whatever they raise on damaged files."""

from __future__ import annotations

import logging

from rag_platform.observability import faults

log = logging.getLogger(__name__)

# Class of the exception, or of one that it derives from, to words; the first that fits.
_WORDS = (
    ("MemoryError", "it needs more memory than there is"),
    ("RecursionError", "its parts are nested too deeply"),
    ("DecompressionBombError", "it has too many pixels"),
    ("UnidentifiedImageError", "its content is no image of a known type"),
    ("BadZipFile", "its archive is damaged"),
    ("LargeZipFile", "its archive is too large"),
    ("XMLSyntaxError", "its XML is damaged"),
    ("ParseError", "its XML is damaged"),
    ("error", "its compressed data is damaged"),  # of zlib and struct
    ("UnicodeError", "its text is not in the encoding that it says"),
    ("EOFError", "it ends too early"),
    ("KeyError", "a part of it is missing"),
    ("NotImplementedError", "it uses a feature that is not read"),
    ("PermissionError", "it may not be read"),
    ("FileNotFoundError", "it is gone"),
    ("SyntaxError", "its header is damaged"),
)


def damage(error: BaseException) -> str:
    """Why a parser failed, as a clause such as `its archive is damaged`; the exception itself goes to the log."""
    log.info("a parser failed", exc_info=error)
    if "truncated" in str(error).lower() or "eof" in str(error).lower().split():
        return "it ends too early"
    names = [cls.__name__ for cls in type(error).__mro__]
    return next((words for name, words in _WORDS if name in names), "its content is damaged")


class Reading(faults.Attempt):
    """A part of a file that may be damaged: its engine may raise anything, and only what this package itself raised is logged."""

    def give_up(self, error: Exception) -> None:
        """Log what is no fault of the file."""
        faults.seen_ours(error, self.stage)

    @property
    def reason(self) -> str:
        """What the engine said, in one line; empty where nothing failed."""
        if self.error is None:
            return ""
        return (str(self.error).splitlines() or [""])[0][:200] or type(self.error).__name__
