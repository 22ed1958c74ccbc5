from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.answering.context_builder import cut_to_fit
from rag_platform.text.passages import units
from rag_platform.text.sentences import ends_sentence, field_label, sentence_ends, sentences


def cut(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


@pytest.mark.parametrize(
    "parts",
    [
        [],
        ["no end"],
        ["Vol. 3 of the U.S. report, p. 12, says so."],
        ["One.", " Two?", "\nThree!", "  Four"],
        ["Version 1.2 is out.", " 3.5 is not; example.com?a=1 is."],
        ["Ask Dr. Smith, i.e. John, cf. Fig. 3 and pp. 4 ff. of it.", " He knows."],
        ["He said “No.”", " (Nobody knew.)", " *It ended.*", " Done."],
        ["Wait... what?", " Yes!?", " Right..."],
        ["\n1. First item.", "\n12. Second."],
        ["20.4.1. Memory is shared.", "\n26.1. Dumps are files."],
        ["In 1912.", " Then more."],
        ["第一句。", "第二句！", "“第三句？”", "他说：“好。”", "然后走了……就这样；完了。"],
        ["版本是 1.2。", "Use 3.5.", " 完成。"],
        ["。！？", "a"],
        ["मेमोरी चाहिए।", " सेवा आरंभ करें।", " पोर्ट 8443 है"],
        ["یہ آلہ ہے۔", " مرمت کریں۔"],
        ["هل يعمل؟", " نعم."],
        ["a thin wing .", " the lift is small ."],
    ],
)
def test_sentences(parts: list[str]) -> None:
    assert cut("".join(parts)) == parts


@given(
    st.text(alphabet="aB1 \n.!?。！？”\"')*e.gU.S", max_size=60),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_sentences_partition_the_text(text: str, start: int, end: int) -> None:
    start, end = sorted((min(start, len(text)), min(end, len(text))))
    spans = list(sentences(text, start, end))
    assert "".join(text[low:high] for low, high in spans) == text[start:end]
    assert all(low < high for low, high in spans)
    assert ends_sentence(text, start, end) is any(sentence_ends(text, start, end))
    assert [high for _, high in spans] == [
        *sentence_ends(text, start, end),
        *([end] if spans and end not in sentence_ends(text, start, end) else []),
    ]


def test_every_part_of_the_program_cuts_alike() -> None:
    one = "Vol. 3 of the U.S. report, p. 12, says so."
    text = f"{one} The next one follows."
    assert [text[unit.start : unit.end] for unit in units(text)] == [one, "The next one follows."]
    assert cut_to_fit(text, lambda part: len(part) <= len(one) + 10) == one


@pytest.mark.parametrize(
    ("line", "label"),
    [
        ("Date: 3 May", "Date:"),
        ("联系人：张三", "联系人："),
        ("甲方（盖章）:云海公司", "甲方（盖章）:"),
        ("Terms:", "Terms:"),
        # no label: a time, an address, a name of code, a sentence, the rest of one
        ("12:30 lunch", ""),
        ("https://example.org", ""),
        ("std::string", ""),
        ("He came, then said: no", ""),
        ("following: the buyer", ""),
    ],
)
def test_a_label_ends_with_a_colon(line: str, label: str) -> None:
    assert field_label(line) == label
