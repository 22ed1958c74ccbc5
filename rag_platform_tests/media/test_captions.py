"""Captions: the contract, routing, context, what is asked once, and what happens when a model fails
or lies.
"""

from __future__ import annotations

import base64
import io
import json
import time
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from rag_platform.config.ingestion import CaptionConfig, MediaConfig
from rag_platform.errors import ConfigError
from rag_platform.ir import Block, Facts, MediaLink, MediaRef, MediaText, ParseSummary
from rag_platform.media.captions import (
    captions,
    classify_by_words,
    encode_for_model,
    local_context,
    looks_like_photo,
    models,
    parse_caption,
    plain_text,
    schema,
)
from rag_platform.media.store import keep
from rag_platform.storage.store import Store
from rag_platform_tests.chat_server import ChatServer, Reply, chat_server, refused, said

GOOD = {
    "image_type": "chart",
    "summary": "Rain rises in spring.",
    "key_points": ["The peak is in May.", "January is dry."],
    "entities": ["rain", "May"],
    "numbers": [{"name": "peak", "value": 80, "unit": "mm", "context": "label of the bar"}],
    "uncertainties": ["the axis has no unit"],
    "chart": {
        "title": "Rain",
        "x_axis": "month",
        "series": [{"name": "2024", "trend": "up", "peaks": ["May"]}],
    },
}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "sesame")


def drawn(draw_on: str = "", size: tuple[int, int] = (320, 240), colour: str = "white") -> bytes:
    picture = Image.new("RGB", size, colour)
    pen = ImageDraw.Draw(picture)
    if draw_on == "grid":
        for at in range(20, 240, 40):
            pen.line((20, at, 300, at), fill="black", width=2)
        for at in range(20, 320, 70):
            pen.line((at, 20, at, 220), fill="black", width=2)
    if draw_on == "axes":
        pen.line((40, 20, 40, 200), fill="black", width=3)
        pen.line((40, 200, 300, 200), fill="black", width=3)
        pen.line([(40 + 20 * n, 190 - n * n) for n in range(12)], fill="blue", width=2)
    if draw_on == "colours":
        picture = Image.effect_mandelbrot(size, (-2, -1, 1, 1), 60).convert("RGB")
        pixels = [
            ((x * 7 + y) % 256, (x + y * 5) % 256, (x * y) % 256)
            for y in range(size[1])
            for x in range(size[0])
        ]
        picture.putdata(pixels)
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return stream.getvalue()


def images(store: Store, *pictures: bytes, name: str = "figure") -> list[MediaLink]:
    found = [keep(data, store, MediaConfig()) for data in pictures]
    return [
        MediaLink(
            f"r{n}", item.asset_id, f"{name}{n}.png", item.mime, item.width, item.height, order=n
        )
        for n, item in enumerate(found)
    ]


def facts_of(
    links: list[MediaLink], text: str = "", blocks: tuple[Block, ...] = (), alt: str = ""
) -> Facts:
    refs = tuple(
        MediaRef(link.ref_id, "markdown", link.origin_ref, order=link.order, context_hint=alt)
        for link in links
    )
    return Facts(text, blocks, refs, ParseSummary("markdown", "1", "x", "1", "p", "", len(text)))


def config(server: ChatServer, **more: object) -> CaptionConfig:
    options = {
        "model": "seeing",
        "base_url": server.url,
        "api_key_env": "TEST_KEY",
        "backoff_ms": 1,
        "retries": 1,
        "timeout_ms": 5000,
    }
    return CaptionConfig.model_validate(
        {"provider": "openai", "options": {**options, **more.pop("options", {})}, **more}
    )  # type: ignore[dict-item]


def ask(
    facts: Facts, links: list[MediaLink], store: Store, chosen: CaptionConfig
) -> list[MediaText]:
    found = captions(facts, links, store, chosen)
    return [found[link.asset_id] for link in links if link.asset_id in found]


# --- the contract -------------------------------------------------------------------------------


def test_a_valid_caption_is_kept_whole_and_becomes_one_line() -> None:
    found = parse_caption("```json\n" + json.dumps(GOOD) + "\n```", "caption.chart_v1-abc")
    assert found["profile_id"] == "caption.chart_v1-abc"
    assert found["numbers"] == [
        {"name": "peak", "value": "80", "unit": "mm", "context": "label of the bar"}
    ]
    assert plain_text(found, "summary") == "Rain rises in spring"
    line = (
        "Rain rises in spring; The peak is in May; January is dry; rain; peak 80 mm; Rain; month;"
        " 2024; up; May"
    )
    assert plain_text(found, "full") == line


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"uncertainties": None}, "uncertainties"),
        ({"numbers": [{"name": "peak", "value": 80, "unit": "mm"}]}, "numbers.0.context"),
        (
            {"numbers": [{"name": "peak", "value": 80, "unit": "mm", "context": " "}]},
            "numbers.0.context",
        ),
        ({"image_type": "painting"}, "image_type"),
        ({"summary": ""}, "summary"),
        ({"key_points": "one"}, "key_points"),
        ({"chart": {"title": "no series"}}, "chart.series"),
        ({"chart": None}, "asks for more fields"),
    ],
)
def test_an_answer_outside_the_contract_is_refused(change: dict[str, object], where: str) -> None:
    answer = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(ValueError, match=where):
        parse_caption(json.dumps(answer), "caption.chart_v1-abc")


@pytest.mark.parametrize("text", ["", "a chart", "[1]", '{"image_type": "chart"'])
def test_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        parse_caption(text, "caption.generic_v1-abc")


def test_added_fields_become_words_and_their_ids_do_not() -> None:
    base = {
        **GOOD,
        "image_type": "table",
        "chart": None,
        "key_points": [],
        "entities": [],
        "numbers": [],
    }
    table = {"headers": ["端口", "用途"], "rows": [["8080", "网关"], ["", "空"]]}
    assert plain_text(
        parse_caption(json.dumps({**base, "table": table}), "caption.table_v1-a"), "full"
    ).endswith("端口; 用途; 8080 网关; 空")
    flow = {
        "nodes": [{"id": "n1", "text": "sluice"}, {"id": "n2", "text": "mill"}],
        "edges": [{"from": "n1", "to": "n2", "label": "water"}],
    }
    assert plain_text(
        parse_caption(json.dumps({**base, "image_type": "diagram", **flow}), "caption.flow_v1-a"),
        "full",
    ).endswith("sluice; mill; water")


def test_at_most_twelve_key_points_are_kept() -> None:
    assert (
        len(
            parse_caption(
                json.dumps({**GOOD, "key_points": [f"point {n}" for n in range(20)]}),
                "caption.chart_v1-a",
            )["key_points"]
        )
        == 12
    )
    assert {"image_type", "uncertainties", "numbers"} <= set(schema()["required"])


# --- routing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (("系统架构图",), "diagram"),
        (("部署流程", "表 3"), "flowchart"),
        (("", "sales_trend_2024"), "chart"),
        (("表 2 端口一览",), "table"),
        (("见表三。",), "table"),
        (("代表 3 人",), "unknown"),
        (("login screen-shot",), "screenshot"),
        (("A photo of the pump",), "photo"),
        (("", "", "the comfortable chair"), "unknown"),
        (("Table of flows",), "table"),
    ],
)
def test_words_route_in_the_order_alt_name_context(texts: tuple[str, ...], kind: str) -> None:
    assert classify_by_words(*texts) == kind


@pytest.mark.parametrize(
    ("shape", "photo"), [("grid", False), ("axes", False), ("colours", True), ("", False)]
)
def test_a_photo_is_told_by_its_colours(shape: str, photo: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(drawn(shape))
    assert looks_like_photo(path) is photo


def test_the_route_decides_which_prompt_is_sent(store: Store) -> None:
    links = images(store, drawn("grid"), drawn("colours"))
    with chat_server(
        lambda body, number: said(json.dumps({**GOOD, "image_type": "unknown"}))
    ) as server:
        found = ask(facts_of(links), links, store, config(server, parallel=1))
        by_alt = ask(facts_of(links[:1], alt="table 3"), links[:1], store, config(server))
    assert [item.caption_profile_id.rpartition("-")[0] for item in [*found, *by_alt]] == [
        "caption.generic_v1",
        "caption.photo_v1",
        "caption.table_v1",
    ]
    assert "kv_pairs" in server.requests[2]["messages"][0]["content"]


# --- context ------------------------------------------------------------------------------------


def test_local_context_is_the_paragraph_and_its_neighbours() -> None:
    text = "Far.\n\nBefore.\n\n![a](a.png) here\n\nAfter.\n\nToo far."
    spans = [(0, 4), (6, 13), (15, 31), (33, 39), (41, 49)]
    blocks = tuple(Block(n, "paragraph", *span) for n, span in enumerate(spans))
    link = MediaLink("r0", "x", "a.png", start=15, end=26, heading_path="A / B")
    assert (
        local_context(facts_of([], text, blocks), link, 800)
        == "A / B\nBefore.\n![a](a.png) here\nAfter."
    )
    assert local_context(facts_of([], text, blocks), link, 10) == "A / B\nBefo"


def test_on_a_page_the_nearest_blocks_are_the_context() -> None:
    text = "top\nnear\nfoot\nother"
    boxes = [(0, 3, 1, 10.0), (4, 8, 1, 190.0), (9, 13, 1, 700.0), (14, 19, 2, 200.0)]
    blocks = tuple(
        Block(n, "paragraph", a, b, page=page, bbox=(0, y, 10, y + 10))
        for n, (a, b, page, y) in enumerate(boxes)
    )
    facts = facts_of([], text, (*blocks, Block(4, "header", 0, 3, page=1, bbox=(0, 199, 10, 200))))
    link = MediaLink("r0", "x", "pdf:xref=4", page=1, bbox=(0, 205, 100, 300))
    assert local_context(facts, link, 800) == "top\nnear\nfoot"
    assert local_context(facts, MediaLink("r0", "x", "pdf:page=1", page=1), 800) == ""


def test_the_scope_decides_what_is_sent_and_is_part_of_the_key(store: Store) -> None:
    links = [MediaLink(**{**_fields(images(store, drawn())[0]), "start": 0, "end": 4})]
    facts = facts_of(links, "The pump runs.", (Block(0, "paragraph", 0, 14),))
    with chat_server(
        lambda body, number: said(json.dumps({**GOOD, "image_type": "mixed"}))
    ) as server:
        local = ask(facts, links, store, config(server))[0]
        none = ask(facts, links, store, config(server, context_scope="none"))[0]
        ask(facts, links, store, config(server))
        ask(facts, links, store, config(server, lang="zh"))
        ask(facts, links, store, config(server, options={"model": "other"}))
    users = [body["messages"][1]["content"][0]["text"] for body in server.requests]
    assert [("The pump runs." in user, "Chinese" in user) for user in users] == [
        (True, False),
        (False, False),
        (True, True),
        (True, False),
    ]
    assert local.context_hash != none.context_hash


def _fields(link: MediaLink) -> dict[str, object]:
    return {name: getattr(link, name) for name in MediaLink.__slots__}


# --- calls and failures -------------------------------------------------------------------------


def test_a_caption_is_asked_once_and_kept_beside_its_image(store: Store) -> None:
    links = images(store, drawn("axes"))
    with chat_server(lambda body, number: said(json.dumps(GOOD))) as server:
        first = ask(facts_of(links), links, store, config(server))
        assert ask(facts_of(links), links, store, config(server)) == first
        assert (
            ask(facts_of(links), links, store, config(server, inject="summary"))[0].caption
            == "Rain rises in spring"
        )
        assert len(server.requests) == 1
    sent = server.requests[0]["messages"][1]["content"][1]["image_url"]["url"]
    assert base64.b64decode(sent.removeprefix("data:image/png;base64,")) == drawn("axes")
    assert server.requests[0]["response_format"]["type"] == "json_schema"
    assert json.loads(first[0].caption_json)["summary"] == "Rain rises in spring."
    assert first[0].warnings == ()


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (said("It is a chart."), "invalid_output"),
        (said(json.dumps({**GOOD, "uncertainties": "none"})), "invalid_output"),
        (refused(500, "broken"), "server_error"),
        (refused(429, "slow down", **{"Retry-After": "0"}), "rate_limited"),
        ((200, "<html>", {}), "broken_reply"),
        (said(""), "empty_reply"),
    ],
)
def test_a_failure_is_unknown_with_uncertainties_and_is_asked_again_next_time(
    store: Store, reply: Reply, code: str
) -> None:
    links = images(store, drawn("axes"))
    with chat_server(lambda body, number: reply) as server:
        found = ask(facts_of(links, alt="rain by month"), links, store, config(server))[0]
        before = len(server.requests)
        ask(facts_of(links, alt="rain by month"), links, store, config(server))
        assert len(server.requests) > before
    caption = json.loads(found.caption_json)
    assert (caption["image_type"], caption["summary"], caption["uncertainties"]) == (
        "unknown",
        "rain by month",
        [f"no caption: {code}"],
    )
    assert found.caption == ""
    assert f"caption failed ({code})" in found.warnings[0]


def test_one_slow_image_does_not_stop_the_others(store: Store) -> None:
    links = images(store, drawn("axes"), drawn("colours"))

    def answer(body: dict[str, object], number: int) -> Reply:
        if "is a photograph" in json.dumps(body["messages"]):
            time.sleep(2.5)
        return said(json.dumps(GOOD))

    with chat_server(answer) as server:
        found = ask(
            facts_of(links),
            links,
            store,
            config(server, options={"timeout_ms": 1500, "retries": 0}),
        )
    assert [item.warnings[:1] == () for item in found] == [True, False]
    assert "timeout" in found[1].warnings[0]


def test_a_missing_key_is_not_asked_for_fifty_times(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEST_KEY")
    links = images(store, drawn("axes"), drawn("grid"))
    with chat_server(lambda body, number: said("x")) as server:
        found = ask(facts_of(links), links, store, config(server, parallel=1))
    assert all("caption failed (missing_key)" in item.warnings[0] for item in found)
    assert server.requests == []


def test_only_so_many_images_are_asked_for_and_small_ones_never(store: Store) -> None:
    links = images(store, drawn("axes"), drawn(size=(50, 50)), drawn("grid"))
    with chat_server(lambda body, number: said(json.dumps(GOOD))) as server:
        found = ask(facts_of(links), links, store, config(server, max_images_per_doc=1))
        assert len(server.requests) == 1
    assert [item.warnings for item in found] == [
        (),
        ("not captioned: above media_texts.captions.max_images_per_doc",),
    ]


def test_the_second_model_stands_in_for_the_first(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = images(store, drawn("axes"))

    def answer(body: dict[str, object], number: int) -> Reply:
        return (
            refused(404, "no such model")
            if body["model"] == "qwen-vl-max"
            else said(json.dumps(GOOD))
        )

    with chat_server(answer) as server:
        options = {"base_url": server.url, "api_key_env": "TEST_KEY", "backoff_ms": 1}
        found = ask(facts_of(links), links, store, CaptionConfig(preset="china", options=options))
    assert [body["model"] for body in server.requests] == ["qwen-vl-max", "gpt-4o"]
    assert found[0].caption.startswith("Rain rises")


def test_presets_name_the_models_of_their_place() -> None:
    named = {
        preset: [options["model"] for _, options in models(CaptionConfig(preset=preset))]
        for preset in ("abroad", "abroad_batch", "china", "china_batch")
    }
    assert named == {
        "abroad": ["gpt-4o", "qwen-vl-max"],
        "abroad_batch": ["gemini-2.5-pro", "qwen-vl-plus"],
        "china": ["qwen-vl-max", "gpt-4o"],
        "china_batch": ["qwen-vl-plus", "gemini-2.5-pro"],
    }
    assert models(CaptionConfig()) == []


def test_large_pictures_are_sent_smaller_and_animations_still(tmp_path: Path) -> None:
    (tmp_path / "big.png").write_bytes(drawn(size=(4000, 1000)))
    sent = encode_for_model(tmp_path / "big.png")
    with Image.open(io.BytesIO(sent.data)) as opened:
        assert (sent.mime, opened.size) == ("image/jpeg", (1568, 392))
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    assert encode_for_model(tmp_path / "moving.gif").mime == "image/jpeg"


def test_an_unknown_provider_stops_the_stage(store: Store) -> None:
    links = images(store, drawn("axes"))
    with pytest.raises(ConfigError, match="unknown llm 'oracle'"):
        ask(facts_of(links), links, store, CaptionConfig(provider="oracle"))
    assert captions(facts_of(links), links, store, CaptionConfig()) == {}
