"""Files of older versions open: keys that mean nothing any more are named and ignored, others are
refused as ever.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rag_platform.config.settings import Settings, Strategy
from rag_platform.config.strategies import load_strategy
from rag_platform.errors import ConfigError
from rag_platform_tests.conftest import TINY

OLD = TINY + "filters: {rules: v1}\nviews: {enricher: {provider: none}, dense_template: '{text}'}\n"


def test_an_old_strategy_opens_and_says_what_is_ignored(
    config_folder: Path, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    (config_folder / "strategies" / "old.yaml").write_text(OLD, encoding="utf-8")
    with caplog.at_level(logging.WARNING, "rag_platform"):
        strategy = load_strategy(settings, "old")
    assert strategy.model_copy(update={"name": "tiny"}) == load_strategy(settings, "tiny")
    assert [message.partition(": ")[2].partition(" (")[0] for message in caplog.messages] == [
        "filters is ignored",
        "views.enricher is ignored",
    ]


def test_the_strategy_that_an_old_release_recorded_opens(settings: Settings) -> None:
    recorded = load_strategy(settings, "tiny").model_dump(mode="json")
    recorded |= {
        "filters": {"rules": "v1"},
        "views": {**recorded["views"], "enricher": {"provider": "none", "options": {}}},
    }
    assert Strategy.model_validate(recorded) == load_strategy(settings, "tiny")


def test_what_never_was_a_key_is_refused(config_folder: Path, settings: Settings) -> None:
    (config_folder / "strategies" / "odd.yaml").write_text(
        TINY + "views: {enrichers: []}\n", encoding="utf-8"
    )
    with pytest.raises(ConfigError, match=r"views\.enrichers"):
        load_strategy(settings, "odd")
