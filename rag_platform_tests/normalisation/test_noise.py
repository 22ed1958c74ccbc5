from __future__ import annotations

import hashlib
from typing import Any

import pytest
from pydantic import ValidationError

from rag_platform.config.ingestion import CleaningConfig, NoiseRule
from rag_platform.config.user_patterns import matches
from rag_platform.errors import DocumentError
from rag_platform.ir import Block, Facts, MediaLink, MediaRef, ParseSummary
from rag_platform.normalisation.edits import normalise


def cleaned(
    text: str,
    *,
    code: tuple[int, int] | None = None,
    image: tuple[int, int] | None = None,
    **rules: Any,
) -> str:
    blocks = [
        Block(0, "paragraph", 0, code[0] if code else len(text)),
        *([Block(1, "code", *code)] if code else []),
    ]
    refs = (MediaRef("r", "markdown", "p.png", *image),) if image else ()
    links = [MediaLink("r", "x", "p.png", start=image[0], end=image[1])] if image else []
    summary = ParseSummary(
        "t", "1", "e", "1", "p", hashlib.sha256(text.encode()).hexdigest(), len(text)
    )
    return normalise(Facts(text, tuple(blocks), refs, summary), links, CleaningConfig(**rules)).text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see https://a.example/b?c=d#e, or not", "see , or not"),
        ("see <https://a.example/b>.", "see ."),
        ("见https://a.example/路径。后文", "见。后文"),
        ('the [guide](https://a.example/b_(c) "t") says', "the guide says"),
        ("the [guide](guide.md) says", "the [guide](guide.md) says"),
        ("at www.example.org/x now", "at  now"),
        ("![i](https://a.example/p.png)", "![i]()"),
        ("`v1.2` and a.b.c", "`v1.2` and a.b.c"),
    ],
)
def test_urls(text: str, expected: str) -> None:
    assert cleaned(text, drop_urls=True) == expected
    assert cleaned(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("write to a.b+c@d-e.example.org.", "write to ."),
        ("<mailto:a@b.cn>", ""),
        ("邮箱a@b.cn，电话", "邮箱，电话"),
        ("a @b c@", "a @b c@"),
    ],
)
def test_emails(text: str, expected: str) -> None:
    assert cleaned(text, drop_emails=True) == expected


def test_lines_that_match_as_a_whole_go_with_their_ends() -> None:
    rule = NoiseRule(pattern=r"Page \d+ of \d+", scope="lines")
    assert (
        cleaned("a\n  Page 1 of 9 \r\nb says Page 2 of 9\nPage 3 of 9", noise=(rule,))
        == "a\nb says Page 2 of 9\n"
    )


def test_replacements_are_literal_and_the_first_rule_wins() -> None:
    rules = (
        NoiseRule(pattern="secret", replacement=r"\\1 [gone]"),
        NoiseRule(pattern="a secret word"),
    )
    assert cleaned("a secret word", noise=rules[:1]) == r"a \\1 [gone] word"
    assert cleaned("x a secret word", noise=rules[::-1]) == "x "


def test_code_and_images_are_left_alone() -> None:
    text = "noise\n```\nnoise\n```"
    assert (
        cleaned(text, code=(6, len(text)), noise=(NoiseRule(pattern="noise"),))
        == "\n```\nnoise\n```"
    )
    assert (
        cleaned(text, code=(6, len(text)), noise=(NoiseRule(pattern="noise", scope="everywhere"),))
        == "\n```\n\n```"
    )
    assert (
        cleaned("![i](p.png) tail", image=(0, 11), noise=(NoiseRule(pattern="png"),))
        == "![i](asset://x) tail"
    )
    assert cleaned("![i](p.png) tail", image=(0, 11), noise=(NoiseRule(pattern="^.*tail$"),)) == ""


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [("(", "not well formed"), ("a*", "matches the empty text"), ("x" * 501, "501 characters")],
)
def test_patterns_that_cannot_be_used_are_refused_when_the_config_loads(
    pattern: str, reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason):
        NoiseRule(pattern=pattern)


def test_a_pattern_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_platform.config.user_patterns.SECONDS", 0.2)
    with pytest.raises(DocumentError, match="nested repetitions") as caught:
        list(matches(r"(a|aa|a?a)+$", "a" * 60 + "b"))
    assert caught.value.code == "pattern_timeout"
