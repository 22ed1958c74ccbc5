"""A question finds a date however the library writes it."""

from __future__ import annotations

from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.ir import QueryRequest
from rag_platform.retrieval.library import Library

NOTICES = {
    "contract": [("合同", "合同编号 HT-0317，签订日期：二〇二四年三月十八日。")],
    "minutes": [("纪要", "评审会议于2024年6月27日在海棠会议室召开。")],
    "staff": [("员工", "何晨的入职日期是2023-09-11，工号 XL0058。")],
    "staff2": [("员工", "王雪的入职日期是2022-02-21，工号 XL0045。")],
    "lease": [("租约", "The lease of unit 12 was signed on 1 July 2023.")],
}


@pytest.mark.parametrize(
    ("question", "document"),
    [
        ("2024年3月18日签订的合同编号", "contract"),
        ("哪份合同是2024-03-18签订的", "contract"),
        ("二〇二四年六月二十七日的会议", "minutes"),
        ("2024.6.27的会议", "minutes"),
        ("2023年9月11日入职的员工", "staff"),
        ("What was signed on 2023-07-01?", "lease"),
    ],
)
def test_a_date_is_found_in_another_form(
    publish: Any, library: Library, question: str, document: str
) -> None:
    publish(NOTICES)
    result = answer(library, QueryRequest(question))
    assert result.hits[0].doc_id == document
    assert not result.signals["numbers_absent"]


def test_a_form_that_the_library_has_is_kept(publish: Any, library: Library) -> None:
    publish({**NOTICES, "copy": [("抄送", "2024年3月18日收到合同的抄送件。")]})
    assert answer(library, QueryRequest("2024年3月18日收到什么")).hits[0].doc_id == "copy"
