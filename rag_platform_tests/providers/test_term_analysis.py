"""Symbols as terms, by hand."""

from __future__ import annotations

import pytest

from rag_platform.providers.term_analysis import find_symbols, symbol_terms

TEXT = """\
The operator `^=` takes (a) caret, `1..=5` a range; call `collect::<Vec<i32>>()`.
`?` -> ends != early. Visit `https://a.b//c` or run `serve --no-Cache`.

```python
@app.get("/items")  # a -> b, x ^= y
```
"""


def test_only_code_holds_symbols() -> None:
    assert symbol_terms(TEXT) == ["§^=", "§..=", "§::<", "§>>", "§?", "§--no-cache", "§@app.get"]


@pytest.mark.parametrize(
    ("question", "symbols"),
    [
        ("what does ^= do", ["§^="]),
        ("What is ::<>?", ["§::<>"]),
        ("`?` 是什么意思", ["§?"]),
        ("..= 和 .. 有什么区别", ["§..="]),
        ("is --reload the same as @app.get here", ["§--reload", "§@app.get"]),
        ("why?! really... -- well", []),
        ("mail a@b.org or https://a.b/--x", []),
        ("what is 5 / 3 - 1", []),
    ],
)
def test_symbols_of_a_question(question: str, symbols: list[str]) -> None:
    assert find_symbols(question) == symbols


def test_the_symbols_of_a_very_long_question_are_found_in_one_pass() -> None:
    """Reading each word from each of its letters would take minutes."""
    assert find_symbols("İıſ" * 100_000 + " a://b/--x --reload") == ["§--reload"]
