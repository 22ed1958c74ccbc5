"""rag_platform.processes.child: what the codecs write, and what they refuse to read."""

from __future__ import annotations

import io
import pickle

import pytest

from rag_platform.processes.child import BadMessage, JsonLines, Pickle


def test_a_json_message_is_one_ascii_line() -> None:
    pipe = io.BytesIO()
    JsonLines().write({"text": "门\n05:30"}, pipe)
    assert pipe.getvalue() == b'{"text": "\\u95e8\\n05:30"}\n'
    pipe.seek(0)
    assert JsonLines().read(pipe) == {"text": "门\n05:30"}


def test_both_codecs_tell_the_end_from_a_broken_message() -> None:
    for codec in (JsonLines(), Pickle()):
        with pytest.raises(EOFError):
            codec.read(io.BytesIO(b""))
        with pytest.raises(BadMessage):
            codec.read(io.BytesIO(b"no message\n"))


def test_a_pickle_is_never_loaded_from_json_lines() -> None:
    """A hostile child cannot make its parent run code."""
    with pytest.raises(BadMessage):
        JsonLines().read(io.BytesIO(pickle.dumps(print)))
