from __future__ import annotations

import pytest

from rag_platform.query.section_numbers import (
    find_asked_releases,
    find_asked_sections,
    is_in_release,
    is_in_sections,
)


@pytest.mark.parametrize(
    ("question", "numbers"),
    [
        ("What does chapter 4 of the policy say?", ["chapter 4"]),
        ("clause 7.2 of contract B", ["section 7.2"]),
        ("ch. 4 and chap. 5", ["chapter 4", "chapter 5"]),
        ("Is § 12a in force?", ["section 12a"]),
        ("annex B, part II", ["appendix b", "part ii"]),
        ("What does ISO 27001 A.9.1 say?", ["a.9.1"]),
        ("第3章第二節怎么说", ["第3章", "第2节"]),
        ("PEP 8 section on imports of version 2.1", []),
        ("Is a section a part of it?", []),
    ],
)
def test_the_sections_that_a_question_names(question: str, numbers: list[str]) -> None:
    assert list(find_asked_sections(question).values()) == numbers


@pytest.mark.parametrize(
    ("heading", "number"),
    [
        ("4. Files", "chapter 4"),
        ("Chapter 4: Files", "chapter 4"),
        ("**4.2.1 Replies**", "section 4.2.1"),
        ("Appendix A.  Grammar", "appendix a"),
        ("B. Grammar", "appendix b"),
        ("A.9 Access", "a.9"),
        ("第三章 考勤", "第3章"),
    ],
)
def test_a_heading_with_the_asked_number(heading: str, number: str) -> None:
    assert is_in_sections(["Title", heading, "Below"], [number])


@pytest.mark.parametrize(
    ("heading", "number"),
    [
        ("Part 4: Files", "chapter 4"),
        ("4.1 Files", "section 4"),
        ("4D printing", "section 4"),
        ("A guide", "appendix a"),
        ("2022 report", "section 2"),
        ("RFC 4", "section 4"),
    ],
)
def test_other_headings(heading: str, number: str) -> None:
    assert not is_in_sections([heading], [number])


@pytest.mark.parametrize(
    ("question", "versions"),
    [
        ("what changed in v1.2.3?", {"v1.2.3": "1.2.3"}),
        ("uview 2.0.38版本修复了什么", {"2.0.38": "2.0.38"}),
        ("when was bash 5.1-2~rc1 released", {"5.1-2~rc1": "5.1-2~rc1"}),
        ("what changed in 2.0?", {"2.0": "2"}),
        ("what was added in V2?", {"V2": "2"}),
        ("what changed in version 2 then?", {"2": "2"}),
        ("what changed in yargs 17?", {"17": "17"}),
        ("what changed in 1.2.x?", {"1.2.x": "1.2.x"}),
        ("what happened on 2024-01-02", {}),
        ("what changed in 2023?", {}),
        ("which 17 options changed?", {}),
    ],
)
def test_the_versions_of_a_question(question: str, versions: dict[str, str]) -> None:
    assert find_asked_releases(question) == versions


@pytest.mark.parametrize(
    ("heading", "is_asked"),
    [
        ("1.2.3 (2024-01-02)", True),
        ("[v1.2.3](https://example.org/compare/v1.2.2...v1.2.3)", True),
        ("tool (1.2.3) unstable", True),
        ("🌈 1.2.3 `2024-01-02`", True),
        ("1.2.30", False),
        ("1.2", False),
        ("1.2.3 Tools", False),  # a section
        ("1.2.3-rc1", False),
    ],
)
def test_a_heading_with_the_asked_version(heading: str, is_asked: bool) -> None:
    assert is_in_release(["Changes", heading, "Fixed"], {"1.2.3"}) is is_asked


@pytest.mark.parametrize(
    ("asked", "heading", "is_asked"),
    [
        ("2.0", "2.0.0 (2024-01-02)", True),
        ("v2", "[2.0.0] - 2024-01-02", True),
        ("2.0.0", "Version 2.0", True),
        ("2.0", "2.0.1", False),
        ("2.0", "20.0", False),
        ("2.x", "2.4.1", True),
        ("2.x", "21.0", False),
    ],
)
def test_a_release_is_named_in_several_ways(asked: str, heading: str, is_asked: bool) -> None:
    versions = find_asked_releases(f"what changed in {asked}?")
    assert is_in_release(["Changes", heading], versions.values()) is is_asked


def test_versions_are_read_in_linear_time() -> None:
    zeros = "1" + ".0" * 100_000
    assert list(find_asked_releases(zeros).values()) == ["1"]
    assert is_in_release([f"{zeros}.1"], {f"{zeros}.1"})
    assert find_asked_releases("a 1 " * 50_000 + "v") == {}
