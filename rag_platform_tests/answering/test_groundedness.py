"""Which sentences passages bear out, by words, numbers and identifiers."""

from __future__ import annotations

import re

import pytest

from rag_platform.answering.groundedness import support_by

TABLE = """\
### 2.1 Ratings

| Property | PX-20 | PX-40 |
| --- | --- | --- |
| Maximum throughput | 6,200 parcels/h | 11,400 parcels/h |

## 3 Use
"""
CHINESE = "PX-40 的最大吞吐量为每小时 11,400 件，重量上限 35 kg。"


@pytest.mark.parametrize(
    ("sentence", "body", "reason"),
    [
        ("The maximum throughput of the PX-40 is 11,400 parcels per hour.", TABLE, ""),
        ("PX-40最大吞吐量为每小时 11,400 件。", CHINESE, ""),
        # the product and the number are there, what is said of them is not
        ("The PX-40 costs 3 euros.", TABLE, "only 0% of its words"),
        ("PX-40 售价 35 元。", CHINESE, "only 0% of its words"),
        (
            "The maximum throughput of the PX-40 is 11,500 parcels.",
            TABLE,
            "numbers that the cited text does not hold: 11500",
        ),
        ("The maximum throughput of the PX-90 is 11,400.", TABLE, "identifiers .*: px-90"),
    ],
)
def test_a_sentence_needs_its_numbers_its_names_and_half_of_its_words(
    sentence: str, body: str, reason: str
) -> None:
    found = support_by(sentence, body)
    assert found.enough is not bool(reason)
    if reason:
        assert re.search(reason, found.reason)
