"""Estimates how much text a version contains before it is read."""

from __future__ import annotations

from rag_platform.ir import Version

# Text in a binary file, as a rough share of its bytes; files full of images have less.
_TEXT_SHARES = {"application/pdf": 0.03, "image": 0.0, "application": 0.1}
_TEXT_TYPES = ("application/json", "application/xhtml+xml", "application/xml")


def text_bytes(version: Version) -> int:
    """The estimated bytes of text in a version; the measured characters once it has been read."""
    if version.mime.startswith("text/") or version.mime in _TEXT_TYPES:
        return version.size
    if (known := version.counts.get("text_chars")) is not None:
        return int(known)
    return int(
        version.size
        * _TEXT_SHARES.get(version.mime, _TEXT_SHARES.get(version.mime.partition("/")[0], 1.0))
    )
