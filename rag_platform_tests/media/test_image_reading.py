"""Texts of images: which images are looked at, kept results, isolated failures; only views follow
from them.
"""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from rag_platform.config.ingestion import CaptionConfig, MediaConfig, MediaTextConfig
from rag_platform.config.profiles import stage_profiles
from rag_platform.config.query import ProviderConfig
from rag_platform.config.settings import Settings, Strategy
from rag_platform.documents.versions import STAGES, VersionBuild, build_stage
from rag_platform.documents.views import terms_of
from rag_platform.errors import ConfigError
from rag_platform.intake import isolation
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ir import Chunk, Facts, MediaLink, MediaText, ParseSummary
from rag_platform.ledger.ledger import Ledger
from rag_platform.media.image_reading import counts_of, read_images, warnings_of
from rag_platform.media.store import keep
from rag_platform.storage.store import Store
from rag_platform.workspace import Workspace
from rag_platform_tests.chat_server import chat_server, said

FAKE = ProviderConfig(provider="rag_platform_tests.fake_ocr:SizeOcr")
FACTS = Facts("", (), (), ParseSummary("markdown", "1", "x", "1", "p", "", 0))


@pytest.fixture(autouse=True, scope="module")
def _children_know_the_tests():
    isolation.pool().close()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parents[2]))
        yield
        isolation.pool().close()


def image(width: int, height: int = 100) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height), (width % 255, 1, 2)).save(stream, "PNG")
    return stream.getvalue()


def stored(store: Store, number: int, width: int, height: int = 100, **where: object) -> MediaLink:
    found = keep(image(width, height), store, MediaConfig())
    return MediaLink(
        f"r{number}",
        found.asset_id,
        f"{width}.png",
        "image/png",
        width,
        height,
        order=number,
        **where,
    )  # type: ignore[arg-type]


def read(store: Store, links: list[MediaLink], **config: object) -> list[MediaText]:
    return read_images(
        FACTS,
        links,
        store,
        MediaTextConfig.model_validate({"ocr": FAKE, "ocr_min_pixels": 1000, **config}),
    )


def test_large_images_are_read_once_and_repetitions_share_the_result(store: Store) -> None:
    links = [
        stored(store, 0, 300),
        stored(store, 1, 9),
        stored(store, 2, 300),
        stored(store, 3, 200),
    ]
    told: list[tuple[str, int, int]] = []
    config = MediaTextConfig(ocr=FAKE, ocr_min_pixels=1000)
    rows = read_images(FACTS, links, store, config, lambda *what: told.append(what))
    assert [(row.asset_id, row.ocr_text, row.ocr_confidence) for row in rows] == [
        (links[0].asset_id, "size 300 x 100\nsecond line", 0.5),
        (links[3].asset_id, "size 200 x 100\nsecond line", 0.5),
    ]
    assert told == [("reading", 1, 2), ("reading", 2, 2)]
    assert len(list((store.media_dir(links[0].asset_id) / "texts").iterdir())) == 1
    for path in store.home.glob("media/*/texts/*.json"):
        path.write_text(path.read_text(encoding="utf-8").replace("size", "kept"), encoding="utf-8")
    assert [row.ocr_text for row in read(store, links)] == [
        "kept 300 x 100\nsecond line",
        "kept 200 x 100\nsecond line",
    ]
    assert read(store, links, ocr={**FAKE.model_dump(), "options": {"prefix": "other"}})[
        0
    ].ocr_text.startswith("other 300")
    assert read(store, links, ocr_max_lines=1)[0].ocr_text == "kept 300 x 100"


def test_one_image_that_fails_hangs_or_kills_costs_only_itself(store: Store) -> None:
    links = [stored(store, number, width) for number, width in enumerate((666, 667, 668, 300))]
    read(store, links[3:])  # the child is warm, so that the limit counts from the image on
    rows = read(store, links, ocr_seconds=1.0)
    assert [bool(row.ocr_text) for row in rows] == [False, False, False, True]
    found = warnings_of(rows, links)
    assert len(found) == 3
    assert "666.png: OCR failed (ocr_failed): cannot read 666" in found[0]
    assert "OCR failed (timeout)" in found[1] and "media_texts.ocr_seconds" in found[1]
    assert "ended with code 9" in found[2]
    assert counts_of(rows)["ocr_success"] == 1 and counts_of(rows)["image_text_failures"] == 3
    assert not list((store.media_dir(links[0].asset_id)).glob("texts/*"))


def test_a_page_is_read_as_a_page_and_not_by_its_strips(store: Store) -> None:
    strip, figure = stored(store, 0, 300, page=1), stored(store, 1, 200, page=2)
    page = dataclasses.replace(stored(store, 2, 250, 350, page=1), origin_ref="pdf:page=1")
    assert [row.ocr_text.split("\n")[0] for row in read(store, [strip, figure, page])] == [
        "size 250 x 350",
        "size 200 x 100",
    ]


def test_what_is_above_the_limit_is_named(store: Store) -> None:
    links = [stored(store, 0, 300), stored(store, 1, 200)]
    rows = read(store, links, ocr_max_images_per_doc=1)
    assert warnings_of(rows, links) == (
        "image on 200.png: not read: above media_texts.ocr_max_images_per_doc",
    )


def test_what_is_not_installed_stops_the_stage(store: Store) -> None:
    with pytest.raises(ConfigError, match="unknown ocr 'tesseract'"):
        read(store, [stored(store, 0, 300)], ocr=ProviderConfig(provider="tesseract"))


def test_terms_of_a_chunk_name_their_image() -> None:
    texts = {
        "a": MediaText("a", ocr_text="Port 80", caption="A plan"),
        "b": MediaText("b", caption="A lamp"),
        "c": MediaText("c"),
    }
    chunk = Chunk(
        "c1", "s", "d", "v", 0, "text", "f", 0, 4, 0, 4, "S", asset_ids=("a", "b", "c", "gone")
    )
    assert (
        terms_of(chunk, texts)
        == "[image_caption asset_id=a] A plan\n[image_caption asset_id=b] A lamp\n[image_ocr"
        " asset_id=a] Port 80"
    )
    bare = dataclasses.replace(chunk, chunk_text="")
    assert (
        terms_of(bare, texts)
        == "Port 80\n[image_caption asset_id=a] A plan\n[image_caption asset_id=b] A lamp"
    )
    assert terms_of(dataclasses.replace(chunk, asset_ids=()), texts) == ""


def with_texts(strategy: Strategy, **texts: object) -> Strategy:
    return strategy.model_copy(update={"media_texts": MediaTextConfig.model_validate(texts)})


def test_on_or_off_the_facts_sections_and_chunks_are_the_same(
    tmp_path: Path,
    settings: Settings,
    tiny: Strategy,
    store: Store,
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEST_KEY", "sesame")
    docs = tmp_path / "docs"
    docs.mkdir()
    picture = Image.new("RGB", (300, 120), "white")
    ImageDraw.Draw(picture).rectangle((10, 10, 90, 60), outline="black")
    picture.save(docs / "plan.png")
    (docs / "a.md").write_text(
        "# Plan\n\nSee it.\n\n![the flow of water](plan.png)\n", encoding="utf-8"
    )
    reception = receive(
        [docs / "a.md"],
        "default",
        Workspace(strategy=tiny, settings=settings, store=store, ledger=ledger),
        ReceiveOptions(),
    )
    version = ledger.version(reception.to_process[0])
    answer = said(
        '{"image_type": "flowchart", "summary": "Water runs to the mill.", "key_points": [],'
        ' "entities": ["mill", "wheel"], "numbers": [], "uncertainties": [], "steps": [{"id": "1",'
        ' "text": "sluice"}]}'
    )

    def built(strategy: Strategy) -> VersionBuild:
        work = VersionBuild(version, strategy, settings, store, docs / "a.md", docs)
        for stage in STAGES:
            build_stage(stage, work)
        return work

    off = built(tiny)
    with chat_server(lambda body, number: answer) as server:
        options = {"model": "seeing", "base_url": server.url, "api_key_env": "TEST_KEY"}
        on = built(
            with_texts(tiny, ocr=FAKE, captions=CaptionConfig(provider="openai", options=options))
        )
        again = built(
            with_texts(tiny, ocr=FAKE, captions=CaptionConfig(provider="openai", options=options))
        )
        assert len(server.requests) == 1
    assert (on.facts, on.links, on.sections) == (off.facts, off.links, off.sections)
    assert on.chunks == off.chunks == again.chunks
    assert [
        on.profiles[stage] == off.profiles[stage]
        for stage in ("facts", "media", "sections", "chunks", "views")
    ] == [True] * 4 + [False]
    asset = on.links[0].asset_id
    assert (
        f"[image_caption asset_id={asset}] Water runs to the mill; wheel; sluice"
        in on.views[0].sparse_text
    )
    assert f"[image_ocr asset_id={asset}] size 300 x 120\nsecond line" in on.views[0].sparse_text
    assert on.views[0].dense_text == off.views[0].dense_text
    assert "image_" not in off.views[0].sparse_text
    assert off.media_texts == [] and on.media_texts == again.media_texts
    outcome = build_stage(
        "media", VersionBuild(version, on.strategy, settings, store, docs / "a.md", docs)
    )
    assert (
        outcome.reused
        and outcome.counts["caption_success"] == 1
        and outcome.counts["ocr_success"] == 1
    )


def test_the_profile_follows_what_is_asked_and_how_prompts_are_worded(
    tiny: Strategy, config_folder: Path
) -> None:
    def profile(**texts: object) -> str:
        return stage_profiles(with_texts(tiny, **texts))["media_texts"]

    captions = {"provider": "openai", "options": {"model": "x"}}
    profiles = [
        profile(),
        profile(ocr=FAKE),
        profile(captions=captions),
        profile(captions={"preset": "china"}),
    ]
    shipped = profile(captions=captions)
    (config_folder / "prompts" / "caption").mkdir(parents=True)
    (config_folder / "prompts" / "caption" / "generic_v1.yaml").write_text(
        "system: x\nuser_template: '{context} {lang}'\n", encoding="utf-8"
    )
    profiles.append(profile(captions=captions))
    assert len(set(profiles)) == 5 and shipped == profiles[2]
