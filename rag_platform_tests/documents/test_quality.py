from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.config.ingestion import QualityConfig, QualityWeights
from rag_platform.documents.views import quality_score

CONFIG = QualityConfig()


@pytest.mark.parametrize(
    ("text", "ocr", "score"),
    [
        ("", None, 0.0),
        ("  \n", 0.9, 0.0),
        ("a" * 200, None, 1.0),
        ("质" * 200, None, 1.0),
        ("a" * 110, None, 0.875),  # (.4 + .2 + .2 * 90/180) / .8
        ("a" * 19, None, 0.75),  # too short: (.4 + .2 + 0) / .8
        ("a" * 200, 0.5, 0.9),  # .4 + .2 + .2 + .2 * .5
        ("a" * 19, 0.0, 0.6),
        # a tenth is garbled: (.4 * .5 + .2 * .9 + .2) / .8
        ("a" * 180 + "\ufffd" * 20, None, 0.725),
        ("\ufffd" * 200, None, 0.25),  # nothing but its length
        ("| a | b |\n|---|---|\n" * 11, None, 1.0),  # the signs of a table are punctuation
        # joiners and soft hyphens are not garbled, but no letters either
        ("a\u200db\u00ad" * 60, None, 0.875),
    ],
)
def test_the_score_is_the_weighted_mean(text: str, ocr: float | None, score: float) -> None:
    assert quality_score(text, CONFIG, ocr) == pytest.approx(score)


def test_weights_are_the_callers() -> None:
    config = QualityConfig(
        weights=QualityWeights(garbled=0, valid=0, length=1, ocr=0), min_len=0, sat_len=100
    )
    assert quality_score("a" * 50, config, 0.1) == 0.5
    assert (
        quality_score(
            "a", QualityConfig(weights=QualityWeights(garbled=0, valid=0, length=0, ocr=1))
        )
        == 0.0
    )


@given(st.text(), st.none() | st.floats(0, 1))
def test_any_text_has_a_score_from_0_to_1(text: str, ocr: float | None) -> None:
    assert 0.0 <= quality_score(text, CONFIG, ocr) <= 1.0
