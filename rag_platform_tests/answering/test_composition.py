"""What stands in place of an answer."""

from __future__ import annotations

from rag_platform.answering.composition import list_passages
from rag_platform.ir import Hit

SETUP = "## Setup\n\nRun it once.\n\n## Ports\n\nIt listens on 8443. [2]"


def hit(text: str, section: str) -> Hit:
    return Hit(1, "c1", 1.0, "", "d", "v", "docs/guide.md", "guide.md", "Guide", section, 0, text)


def test_passages_are_listed_behind_a_plain_statement() -> None:
    uploads = hit("The limit is 5. [2]", "Uploads")
    text, citations = list_passages("no_answer", "en", [(uploads, ""), (uploads, "")])
    assert text.startswith("No passage clearly answers this question. The closest ones, which may")
    assert "**Guide** (Uploads)" in text
    assert [c.id for c in citations] == [1, 2]
    chinese, _ = list_passages("no_answer", "zh", [(uploads, "The limit is 5. [2]")])
    assert chinese.startswith("没有段落明确回答这个问题。最接近的段落如下，未必是答案：")
    assert chinese.endswith(": The limit is 5. \\[2\\] [1]")  # of the passage, no mark of ours
    assert list_passages("nothing", "zh", []) == ("知识库中没有与该问题匹配的内容。", ())
    assert list_passages("filtered", "zh", [])[0].startswith("没有找到符合过滤条件的段落")


def test_a_passage_of_several_sections_is_named_by_that_of_its_sentence() -> None:
    text, [citation] = list_passages(
        "no_answer", "en", [(hit(SETUP, "Guide / Setup"), "It listens on 8443. [2]")]
    )
    assert text.endswith("- **Guide** (Ports): It listens on 8443. \\[2\\] [1]")
    assert (citation.section_path, citation.quote_section) == ("Guide / Setup", "Guide / Ports")
    assert SETUP[slice(*citation.spans[0])] == "It listens on 8443. [2]"


def test_a_passage_of_code_is_listed_by_its_section() -> None:
    text, _ = list_passages("no_answer", "en", [(hit("## Setup\n\n```\nrun()\n```", "Setup"), "")])
    assert text.endswith("\n- **Guide** (Setup) [1]")
