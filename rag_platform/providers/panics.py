"""Panics of engines written in Rust: to Python they are no Exceptions, so whoever catches these
would be ended by a damaged file.
"""

from __future__ import annotations


def is_panic(error: BaseException) -> bool:
    """True for what a panic becomes; each extension has a class of that name of its own, and none
    can be imported.
    """
    return type(error).__name__ == "PanicException"
