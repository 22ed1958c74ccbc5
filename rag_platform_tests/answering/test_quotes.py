"""What may be quoted, and how far a quote reaches."""

from __future__ import annotations

import pytest

from rag_platform.answering import constants
from rag_platform.answering.quotes import find_quotable, find_spans


def quotable(text: str) -> list[str]:
    return [text[item.start : item.end] for item in find_quotable(text)]


def quote(text: str, beginning: str, *, complete: bool = False) -> list[str]:
    """The parts of the quote of what begins so."""
    found = find_quotable(text)
    at = next(n for n, item in enumerate(found) if text.startswith(beginning, item.unit.start))
    return [text[start:end] for start, end in find_spans(text, found, at, complete=complete)]


@pytest.mark.parametrize(
    "text",
    [
        "- [Install](install.md)\n- [Upgrade](upgrade.md)",
        "[Home](a.md) | [Guide](b.md) | [API](c.md)",
        "## See also\n\n- The [guide](b.md) explains limits.",
        "## 另请参阅\n\n- [指南](b.md)解释了限制。",
        "io/limits/#upload)的细节。",
        "(https://x.io/limits/#upload) has the limits.",
        "larger files are refused with an error.",
        "，超过上限的请求会排队。",
        "The limits are described in the [guide of",
        "The limits are described in the [guide](https://x.io/li",
    ],
)
def test_navigation_and_what_is_cut_is_not_quoted(text: str) -> None:
    assert quotable(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "The [guide](b.md) explains limits.",
        "- [Upload](b.md): 50 MB at most.",
        "`upload` is limited to 50 MB.",
        "# Limits\n\npip installs it.",
    ],
)
def test_a_sentence_with_a_link_or_in_lower_case_is(text: str) -> None:
    assert len(quotable(text)) == 1


def test_a_line_of_a_long_code_block_is_not_quoted() -> None:
    lines = "\n".join(f"line_{n} = {n}" for n in range(20))
    assert quotable(f"```\n{lines}\n```\n\nThat was it.") == ["That was it."]


def test_code_comes_with_the_sentences_around_it() -> None:
    text = "Old.\n\nRun this:\n\n```sh\nls\n```\n\nIt lists files. Later."
    assert quotable(text)[1] == "Run this:\n\n```sh\nls\n```"
    assert quote(text, "```sh") == ["Run this:", "```sh\nls\n```", "It lists files."]


def test_what_draws_a_tab_between_code_and_its_introduction_is_left_out() -> None:
    text = "Run this:\n\n//// tab | Linux\n\n```sh\nls\n```\n\n////\n\n## Next\n\nMore."
    assert quote(text, "```sh") == ["Run this:", "```sh\nls\n```"]
    # not over a heading
    assert quote("Run this:\n\n## Next\n\n```sh\nls\n```", "```sh") == ["```sh\nls\n```"]


def test_a_sentence_that_ends_in_a_colon_comes_with_its_list() -> None:
    text = "It reads:\n\n- PDF\n- Word\n\nNothing else."
    assert quote(text, "It reads") == ["It reads:", "- PDF\n- Word"]
    assert quote(text, "PDF") == ["PDF"]
    table = "Sizes:\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    assert quote(table, "Sizes") == ["Sizes:", "| a | b |\n|---|---|\n| 1 | 2 |"]
    many = "\n".join(f"- number {n}" for n in range(100))
    assert quote(f"It reads:\n\n{many}", "It reads") == ["It reads:"]
    # before what a documentation tool puts in, it is quoted by itself
    assert quote("Set it like this:\n\n{* ../a.py *}", "Set it") == ["Set it like this:"]


def test_a_step_comes_with_all_steps() -> None:
    text = "To restart:\n\n1. Stop it.\n2. Start it.\n\nDone."
    assert quote(text, "Start it") == ["To restart:", "1. Stop it.\n2. Start it."]
    long = "\n".join(f"{n}. Do the thing number {n}." for n in range(1, 60))
    assert quote(long, "Do the thing number 7.") == ["Do the thing number 7."]


def test_a_sentence_comes_with_its_paragraph_unless_it_is_complete() -> None:
    text = "First one. Second one. Third one.\n\nOther paragraph."
    assert quote(text, "Second") == ["First one. Second one. Third one."]
    assert quote(text, "Second", complete=True) == ["Second one."]
    long = "X" * constants.QUOTE_CHARS
    assert quote(f"First one. Second one. {long}.", "Second") == ["First one. Second one."]
