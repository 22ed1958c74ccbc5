"""Writes JSON lines under `logs/`: traces and the program's log share the files and the redaction
of secrets.

A line is appended by one write, so that lines of several processes do not mix. Writing never
raises: failures are counted, and the first one is reported through `logging`.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import orjson

from rag_platform.errors import ConfigError, RagError
from rag_platform.observability import context

LOG_SCHEMA_VERSION = 1
REDACTED = "[redacted]"
_OPEN_FILES = 8
_KEYS = tuple(
    "api_key apikey access_key secret_key private_key secret password passwd authorization cookie"
    " token credentials".split()
)
# One pattern for each case, as a pattern with a literal first letter is nine times as fast.
_PATTERNS = (
    # not the end of a name like `disk-space-3f2a9c1b7d`; but after an escape of JSON, and where 20
    # letters and digits follow in a row, it is a key
    r"sk-(?:(?<![a-z-]sk-)|(?<=\\[bfnrt]sk-)|(?=[a-z0-9-]{0,12}(?=[A-Za-z]{0,19}\d)[A-Za-z0-9]{20}))[A-Za-z0-9_-]{16,}",
    r"Bearer\s+[A-Za-z0-9._~+/=-]{12,}",
    r"bearer\s+[A-Za-z0-9._~+/=-]{12,}",
    r'://[^/\s:@"]+:[^/\s:@"]+@',
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RedactConfig:
    """What is replaced by `[redacted]`: values of the keys, and matches of the patterns."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    keys: tuple[str, ...] = _KEYS
    patterns: tuple[re.Pattern[str], ...] = tuple(map(re.compile, _PATTERNS))


@dataclass(frozen=True)
class LogConfig:
    """The content of `config/logging.yaml`."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    schema_version: int = LOG_SCHEMA_VERSION
    level: str = "INFO"
    fields: Mapping[str, Any] = field(default_factory=lambda: {"env": "dev"})
    max_line_bytes: int = 262_144
    redact: RedactConfig = field(default_factory=RedactConfig)


def load_log_config() -> LogConfig:
    """The content of `logging.yaml` in the config, overridden by `RAG_ENV` and `RAG_LOG_LEVEL`.
    Raises ConfigError with the file and the key.
    """
    from pydantic import TypeAdapter, ValidationError

    from rag_platform.config.folders import config_file
    from rag_platform.config.yaml_files import invalid_value, read_mapping

    path = config_file("logging.yaml")
    values = read_mapping(path)
    given = {key: value for key, value in values.items() if value is not None}
    level = os.environ.get("RAG_LOG_LEVEL", str(given.get("level", "INFO"))).upper()
    if level not in logging.getLevelNamesMapping():
        raise ConfigError(f"{path}: level {level!r} is unknown; use DEBUG, INFO, WARNING or ERROR")
    try:
        config = TypeAdapter(LogConfig).validate_python({**given, "level": level})
    except ValidationError as error:
        raise invalid_value(error, path) from error
    env = {"env": os.environ["RAG_ENV"]} if os.environ.get("RAG_ENV") else {}
    return replace(config, fields={**LogConfig().fields, **config.fields, **env})


@cache
def log_config() -> LogConfig:
    """The process's logging config; if the file is invalid the defaults, with a warning."""
    try:
        return load_log_config()
    except (RagError, OSError) as error:
        _log.warning("logging config ignored: %s", error)
        return LogConfig()


# --- redaction ----------------------------------------------------------------------------------


class Redaction:
    """Encodes values as JSON without secrets."""

    def __init__(self, config: LogConfig) -> None:
        names = "|".join(re.escape(key) for key in config.redact.keys)
        self._max_bytes = config.max_line_bytes
        self._key = (
            re.compile(rf"(?:.*[_\-.])?(?:{names})", re.IGNORECASE | re.DOTALL) if names else None
        )
        # The encoded line is searched first, because walking every payload would cost more than
        # writing it; an alternation of all keys or patterns is five times slower than single ones.
        self._suspects = tuple(f'{key.lower()}":' for key in config.redact.keys)
        self._values = config.redact.patterns

    def line(self, value: Mapping[str, Any]) -> bytes:
        """`value` as one JSON line with secrets replaced; if it is too long, `payload` and `attrs`
        are replaced by a preview.
        """
        text = self._text(value)
        if len(text) > self._max_bytes:
            short = {k: v for k, v in value.items() if k not in ("payload", "attrs", "message")}
            text = self._text({**short, "truncated": True, "preview": text[: self._max_bytes // 4]})
        return text.encode("utf-8", "backslashreplace") + b"\n"

    def lines(self, values: Sequence[Mapping[str, Any]]) -> bytes:
        """The values as JSON lines, searched for secrets all at once."""
        texts = [_encode(value) for value in values]
        whole = "\n".join(texts)
        lowered = whole.lower()
        if (
            all(len(text) <= self._max_bytes for text in texts)
            and not any(suspect in lowered for suspect in self._suspects)
            and not any(pattern.search(whole) for pattern in self._values)
        ):
            return whole.encode("utf-8", "backslashreplace") + b"\n"
        return b"".join(self.line(value) for value in values)

    def _text(self, value: Any) -> str:
        text = _encode(value)
        lowered = text.lower()
        if any(suspect in lowered for suspect in self._suspects):
            text = _encode(self._without_secrets(json.loads(text)))
        for pattern in self._values:
            text = pattern.sub(REDACTED, text)
        return text

    def _without_secrets(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                k: (
                    REDACTED
                    if self._key and self._key.fullmatch(k) and v
                    else self._without_secrets(v)
                )
                for k, v in value.items()
            }
        return [self._without_secrets(item) for item in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):  # numpy scalars
        return value.item()
    return sorted(map(str, value)) if isinstance(value, (set, frozenset)) else str(value)


def _encode(value: Any) -> str:
    try:
        return orjson.dumps(value, default=_plain, option=_AS_TEXT).decode()
    # a lone surrogate, a number above 64 bits, a key that is not a string
    except TypeError:
        return _slowly(value)


_AS_TEXT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_slowly = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain).encode


@cache
def redaction() -> Redaction:
    """The process's redaction, compiled once."""
    return Redaction(log_config())


# --- appending ----------------------------------------------------------------------------------


class _Files:
    """Open descriptors by folder. File names contain the day and the process id, so a new file is
    opened at midnight and after a fork.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.open: OrderedDict[Path, tuple[str, int]] = OrderedDict()
        self.failures = 0
        self.torn: set[int] = set()

    def append(self, logs_dir: Path, line: bytes) -> None:
        with self.lock:
            descriptor = self._descriptor(logs_dir)
            # after an incomplete write start a new line; readers skip the broken one
            if descriptor in self.torn:
                line = b"\n" + line
            written = os.write(descriptor, line)
            if written < len(line):
                self.torn.add(descriptor)
                raise OSError(f"wrote {written} of {len(line)} bytes")
            self.torn.discard(descriptor)

    def _descriptor(self, logs_dir: Path) -> int:
        name = f"{time.strftime('%Y-%m-%d', time.gmtime())}-{os.getpid()}.jsonl"
        known = self.open.get(logs_dir)
        if known is not None:
            if known[0] == name:
                return known[1]
            self._close(logs_dir)
        logs_dir.mkdir(exist_ok=True)  # without parents: reading must not create a data root
        descriptor = os.open(logs_dir / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        self.open[logs_dir] = (name, descriptor)
        if len(self.open) > _OPEN_FILES:
            self._close(next(iter(self.open)))
        return descriptor

    def _close(self, logs_dir: Path) -> None:
        _, descriptor = self.open.pop(logs_dir)
        self.torn.discard(descriptor)
        os.close(descriptor)


_files = _Files()


def append(logs_dir: Path, *values: Mapping[str, Any]) -> bool:
    """Append the lines in one write; True if that succeeded. Failures are counted and never raised;
    a missing data root is not a failure.
    """
    try:
        _files.append(logs_dir, redaction().lines(values))
    except FileNotFoundError:
        return False
    except Exception as error:  # noqa: BLE001 (a failure to log must not stop the work)
        if not _files.failures:
            _log.warning(
                "traces and logs of this process are not kept: %s cannot be written (%s)",
                logs_dir,
                getattr(error, "strerror", None) or error,
            )
        _files.failures += len(values)
        return False
    return True


# --- the program's log --------------------------------------------------------------------------


class JsonlHandler(logging.Handler):
    """Writes `logging` records to the files of the traces, linked to them by trace_id."""

    def __init__(self, logs_dir: Path) -> None:
        super().__init__()
        self.logs_dir = logs_dir

    def emit(self, record: logging.LogRecord) -> None:
        """Append one record, unless it is from this module, to avoid recursion."""
        if record.name == __name__:
            return
        line: dict[str, Any] = {
            "schema_version": LOG_SCHEMA_VERSION,
            "line": "log",
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "trace_id": context.current_trace_id(),
            "span_id": context.current_span_id(),
        }
        if record.exc_info:
            line["exception"] = logging.Formatter().formatException(record.exc_info)
        append(self.logs_dir, line)


def setup_logging(logs_dir: Path) -> None:
    """Write the package's log to `logs_dir` at the configured level; replaces an earlier
    handler.
    """
    logger = logging.getLogger("rag_platform")
    for handler in [item for item in logger.handlers if isinstance(item, JsonlHandler)]:
        logger.removeHandler(handler)
    logger.addHandler(JsonlHandler(logs_dir))
    logger.setLevel(log_config().level)
