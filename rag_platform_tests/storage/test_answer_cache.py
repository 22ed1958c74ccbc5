"""The cache of what models answered."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from rag_platform.storage.answer_cache import AnswerCache


def test_rows_are_found_again_by_another_process_until_they_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "answers.sqlite"
    with closing(AnswerCache(path, "answers", {"answer": "TEXT", "model": "TEXT"})) as cache:
        cache.put("a", "first", "m")
        cache.put("a", "second", "m")
        cache.put("b", "other text", "m")
    with closing(AnswerCache(path, "answers", {"answer": "TEXT", "model": "TEXT"})) as cache:
        assert cache.get(["a", "b", "c"]) == {"a": "second", "b": "other text"}
        assert cache.sizes() == {"a": 6, "b": 10}
        cache.remove(["b"])
        assert cache.get(["a", "b"]) == {"a": "second"}
    assert not any(b"other text" in item.read_bytes() for item in tmp_path.iterdir())


def test_the_oldest_rows_go_when_there_are_too_many(tmp_path: Path) -> None:
    with closing(AnswerCache(tmp_path / "s", "scores", {"score": "REAL"}, most=2)) as cache:
        for key, score in (("a", 0.1), ("b", 0.2), ("a", 0.3), ("c", 0.4)):
            cache.put(key, score)
        assert cache.get("abc") == {"a": 0.3, "c": 0.4}  # `a` was written after `b`
