"""Captions images with a multimodal language model: classifies an image by nearby words or by its
colours to choose the prompt, calls the model, and validates its JSON answer.
"""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from rag_platform.config import prompts
from rag_platform.config.ingestion import CaptionConfig
from rag_platform.config.settings import fingerprint
from rag_platform.errors import ProviderError
from rag_platform.ir import Block, Facts, Json, MediaLink, MediaText
from rag_platform.media.store import display_path
from rag_platform.observability import tracing
from rag_platform.protocols import LLM, Picture
from rag_platform.providers.model_replies import strip_fence
from rag_platform.registry import make_provider, provider_version
from rag_platform.storage.records import CACHE_REMEDY, SCHEMA_VERSION
from rag_platform.storage.store import Store, read_json, write_json

FIELDS = ("context", "lang")
_LANGUAGES = {
    "zh": "Chinese (简体中文)",
    "en": "English",
    "auto": "the language of the text in the image, else of the context",
}
_QWEN = {
    "base_url": "https://dashscope.aliyuncs.com/compatible-mode/v1",
    "api_key_env": "DASHSCOPE_API_KEY",
}
_GEMINI = {
    "base_url": "https://generativelanguage.googleapis.com/v1beta/openai/",
    "api_key_env": "GEMINI_API_KEY",
    "model": "gemini-2.5-pro",
}
# options of the provider `openai`: the first choice and its fallback
PRESETS: dict[str, tuple[Json, ...]] = {
    "abroad": ({"model": "gpt-4o"}, {**_QWEN, "model": "qwen-vl-max"}),
    "abroad_batch": (_GEMINI, {**_QWEN, "model": "qwen-vl-plus"}),
    "china": ({**_QWEN, "model": "qwen-vl-max"}, {"model": "gpt-4o"}),
    "china_batch": ({**_QWEN, "model": "qwen-vl-plus"}, _GEMINI),
}
_MAX_SENT_PIXELS = 1568  # longer side of an image sent to a model
_MAX_SENT_BYTES = 1_500_000
# errors that every other image would get, too
_PERMANENT_ERRORS = ("missing_key", "no_model", "unauthorized", "forbidden", "model_not_found")


@dataclass(frozen=True, slots=True)
class _Request:
    """One image with the prompt and context for the model."""

    link: MediaLink
    image: Path
    alt_text: str
    context: str
    context_hash: str
    prompt: prompts.Prompt


def captions(
    facts: Facts,
    images: Sequence[MediaLink],
    store: Store,
    config: CaptionConfig,
    on_image: Callable[[str, int, int], None] | None = None,
) -> dict[str, MediaText]:
    """asset_id to caption for the images that are large enough; a failed one has type `unknown`.

    Captions are cached in their image's folder by (profile, model, context, language). Raises
    ConfigError for a bad prompt file or an unknown provider.
    """
    choices = models(config)
    provider = choices[0][0] if choices else "none"
    with tracing.span(
        "stage.caption",
        provider_type="llm",
        provider_id=provider,
        provider_version=provider_version("llm", provider),
    ) as span:
        if not choices:
            return {}
        large = [link for link in images if link.width * link.height >= config.min_pixels]
        most = config.max_images_per_doc
        why = "not captioned: above media_texts.captions.max_images_per_doc"
        found = {link.asset_id: MediaText(link.asset_id, warnings=(why,)) for link in large[most:]}
        prepared = (_prepare(link, facts, store, config) for link in large[:most])
        requests = [item for item in prepared if item is not None]
        built = [(name, options, make_provider("llm", name, options)) for name, options in choices]
        work = _Captioning(store, config, built)
        with ThreadPoolExecutor(config.parallel, thread_name_prefix="caption") as threads:
            futures = [threads.submit(tracing.carry(work.caption), item) for item in requests]
            for number, (item, future) in enumerate(zip(requests, futures, strict=True)):
                found[item.link.asset_id] = future.result()
                if on_image:
                    on_image("describing", number + 1, len(requests))
        span.set(
            images=len(requests),
            reused=work.reused,
            failed=sum(bool(x.warnings) for x in found.values()),
            cost=work.cost or None,
        )
    return found


def models(config: CaptionConfig) -> list[tuple[str, Json]]:
    """(provider, options) of the model and its fallbacks; empty when captions are off."""
    if config.preset:
        name = "openai" if config.provider == "none" else config.provider
        return [(name, {**options, **config.options}) for options in PRESETS[config.preset]]
    return [] if config.provider == "none" else [(config.provider, dict(config.options))]


def _prepare(link: MediaLink, facts: Facts, store: Store, config: CaptionConfig) -> _Request | None:
    image = display_path(store, link.asset_id)
    if image is None:
        return None
    own = (link.ref_id, link.origin_ref)
    hints = (it.context_hint for it in facts.media if (it.ref_id, it.origin_ref) == own)
    alt_text = next(hints, "")
    is_local = config.context_scope == "local"
    context = local_context(facts, link, config.context_chars) if is_local else ""
    is_file = not link.origin_ref.startswith(("pdf:", "data:"))
    name = PurePosixPath(link.origin_ref).stem if is_file else ""
    kind = classify_by_words(alt_text, name, context)
    if kind == "unknown" and looks_like_photo(image):
        kind = "photo"
    prompt = prompts.load(PROFILES[kind], FIELDS)
    return _Request(
        link, image, alt_text, context, fingerprint(config.context_scope, context), prompt
    )


def local_context(facts: Facts, link: MediaLink, limit: int) -> str:
    """The headings above an image and the text around it, at most `limit` characters: its block and
    both neighbours, or on a page the three nearest blocks.
    """
    blocks = [
        block for block in facts.blocks if block.kind not in ("header", "footer", "front_matter")
    ]
    if link.start is not None:
        at = next(
            (i for i, block in enumerate(blocks) if block.start <= (link.start or 0) < block.end),
            None,
        )
        near = blocks[max(0, at - 1) : at + 2] if at is not None else []
    elif link.bbox is not None:
        here = [block for block in blocks if block.page == link.page and block.bbox is not None]
        near = sorted(
            sorted(here, key=lambda block: _distance(block, link))[:3],
            key=lambda block: block.start,
        )
    else:
        near = []
    texts = [link.heading_path, *(facts.text[block.start : block.end] for block in near)]
    return "\n".join(texts).strip()[:limit]


def _distance(block: Block, link: MediaLink) -> float:
    assert block.bbox is not None and link.bbox is not None
    return max(0.0, block.bbox[1] - link.bbox[3], link.bbox[1] - block.bbox[3])


@dataclass
class _Captioning:
    """The model calls for one document, made by several threads."""

    store: Store
    config: CaptionConfig
    models: Sequence[tuple[str, Mapping[str, Any], LLM]]
    reused: int = 0
    cost: float = 0.0
    permanent_error: ProviderError | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def caption(self, item: _Request) -> MediaText:
        """The caption of one image: from the cache, from a model, or unknown."""
        prompt = item.prompt
        choices = fingerprint(*[(name, dict(options)) for name, options, _ in self.models])
        key = fingerprint(prompt.profile_id, choices, item.context_hash, self.config.lang)
        path = self.store.media_text_path(item.link.asset_id, f"caption-{key}")
        if path.is_file():
            self._count(reused=1)
            known = json.dumps(read_json(path, CACHE_REMEDY)["caption"])
            return self._make(parse_caption(known, prompt.profile_id), item)
        try:
            text, name, model = self._answer(item)
            caption = parse_caption(text, prompt.profile_id)
        except ProviderError as error:
            return self._fail(item, error.code, error.message)
        except ValueError as error:
            return self._fail(item, "invalid_output", str(error))
        kept = {
            "schema_version": SCHEMA_VERSION,
            "asset_id": item.link.asset_id,
            "profile_id": prompt.profile_id,
            "model_id": model,
            "provider_id": name,
            "context_hash": item.context_hash,
            "lang": self.config.lang,
            "caption": caption,
        }
        write_json(path, kept)
        self._trace(item, name, model, "")
        return self._make(caption, item)

    def _count(self, *, reused: int = 0, cost: float = 0.0) -> None:
        with self.lock:
            self.reused += reused
            self.cost += cost

    def _answer(self, item: _Request) -> tuple[str, str, str]:
        """(text, provider, model) of the first model that answers. Raises ProviderError."""
        if self.permanent_error is not None:
            raise self.permanent_error
        context, lang = item.context or "(none)", _LANGUAGES[self.config.lang]
        messages = item.prompt.messages((encode_for_model(item.image),), context=context, lang=lang)
        errors: list[ProviderError] = []
        for name, _, model in self.models:
            try:
                completion = model.generate(messages, mode="offline", json_schema=schema())
            except ProviderError as error:
                errors.append(error)
                continue
            self._count(cost=completion.cost or 0.0)
            return completion.text, name, completion.model
        if all(error.code in _PERMANENT_ERRORS for error in errors):
            self.permanent_error = errors[0]
        raise errors[0]

    def _make(self, caption: Json, item: _Request, warning: str = "") -> MediaText:
        return MediaText(
            item.link.asset_id,
            caption="" if warning else plain_text(caption, self.config.inject),
            caption_json=json.dumps(caption, ensure_ascii=False),
            caption_profile_id=item.prompt.profile_id,
            context_hash=item.context_hash,
            warnings=(warning,) if warning else (),
        )

    def _fail(self, item: _Request, code: str, message: str) -> MediaText:
        self._trace(item, self.models[0][0], "", code)
        caption = unknown_caption(item.prompt.profile_id, item.alt_text, f"no caption: {code}")
        return self._make(caption, item, f"caption failed ({code}): {message[:200]}")

    def _trace(self, item: _Request, provider: str, model: str, code: str) -> None:
        payload = {
            "asset_id": item.link.asset_id,
            "caption_provider_id": provider,
            "model_id": model,
            "caption_profile_id": item.prompt.profile_id,
            "error_code": code,
            "context_scope": self.config.context_scope,
            "context_hash": item.context_hash,
        }
        tracing.event("caption.generated", payload)


def encode_for_model(path: Path) -> Picture:
    """The image for a model: unchanged if small, else a JPEG of at most 1568 pixels each way."""
    from PIL import Image

    with Image.open(path) as opened:
        kind = str(opened.format)
        if (
            max(opened.size) <= _MAX_SENT_PIXELS
            and path.stat().st_size <= _MAX_SENT_BYTES
            and not getattr(opened, "is_animated", False)
        ):
            return Picture(path.read_bytes(), Image.MIME[kind])
        flat = Image.new("RGB", opened.size, "white")
        drawn = opened.convert("RGBA")
        flat.paste(drawn, mask=drawn.getchannel("A"))
    flat.thumbnail((_MAX_SENT_PIXELS, _MAX_SENT_PIXELS))
    stream = io.BytesIO()
    flat.save(stream, "JPEG", quality=85)
    return Picture(stream.getvalue(), "image/jpeg")


ImageType = Literal[
    "table", "chart", "flowchart", "diagram", "screenshot", "photo", "mixed", "unknown"
]
PROFILES: dict[str, str] = {  # image type to prompt
    "table": "caption/table_v1",
    "chart": "caption/chart_v1",
    "flowchart": "caption/flow_v1",
    "diagram": "caption/flow_v1",
    "screenshot": "caption/screenshot_v1",
    "photo": "caption/photo_v1",
    "mixed": "caption/generic_v1",
    "unknown": "caption/generic_v1",
}
MAX_KEY_POINTS = 12
RequiredText = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)
]
OptionalText = Annotated[str, StringConstraints(strip_whitespace=True, max_length=2000)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)


class Number(_Part):
    """A number with where it was read: legend, axis, label."""

    name: RequiredText
    value: RequiredText
    unit: OptionalText | None = ""
    context: RequiredText


class Pair(_Part):
    """A label and what stands beside it."""

    key: RequiredText
    value: OptionalText


class Table(_Part):
    """Cells as printed; one that cannot be read is empty."""

    headers: list[OptionalText]
    rows: list[list[OptionalText]]


class Series(_Part):
    """One line or set of bars."""

    name: OptionalText | None = ""
    trend: OptionalText | None = ""
    peaks: list[OptionalText] = []


class Chart(_Part):
    """Axes and series."""

    title: OptionalText | None = ""
    x_axis: OptionalText | None = ""
    y_axis: OptionalText | None = ""
    series: list[Series]


class Step(_Part):
    """A step of a flow; `from` and `to` name others."""

    id: RequiredText
    text: RequiredText
    from_: list[OptionalText] | OptionalText | None = Field(default=None, alias="from")
    to: list[OptionalText] | OptionalText | None = None


class Node(_Part):
    """A box."""

    id: RequiredText
    text: OptionalText


class Edge(_Part):
    """An arrow between boxes."""

    model_config = ConfigDict(populate_by_name=True)

    from_: RequiredText = Field(alias="from")
    to: RequiredText
    label: OptionalText | None = ""


class Ui(_Part):
    """What a screenshot offers and complains about."""

    app: OptionalText | None = ""
    page: OptionalText | None = ""
    actions: list[OptionalText]
    errors: list[OptionalText]


class Caption(_Part):
    """The contract of every profile and the fields that some add."""

    profile_id: str = ""
    image_type: ImageType
    summary: RequiredText
    key_points: list[RequiredText]
    entities: list[RequiredText]
    numbers: list[Number]
    uncertainties: list[RequiredText]
    table: Table | None = None
    kv_pairs: list[Pair] | None = None
    chart: Chart | None = None
    steps: list[Step] | None = None
    nodes: list[Node] | None = None
    edges: list[Edge] | None = None
    ui: Ui | None = None
    scene_tags: list[OptionalText] | None = None

    @model_validator(mode="after")
    def _check_profile_fields(self) -> Caption:
        """Raise ValueError for a caption without the field of its type, such as `table`."""
        added = {
            "table_v1": ("table", self.table or self.kv_pairs),
            "chart_v1": ("chart", self.chart),
            "flow_v1": ("flowchart diagram", self.steps or self.nodes),
            "screenshot_v1": ("screenshot", self.ui),
        }.get(self.profile_id.rpartition(".")[2].partition("-")[0])
        if added and self.image_type in added[0].split() and added[1] is None:
            raise ValueError(
                f"{self.profile_id} asks for more fields of an image of type {self.image_type}"
            )
        return self


def schema() -> Json:
    """The JSON schema sent to models. Docstrings of the classes above are part of it."""
    return Caption.model_json_schema(by_alias=True)


def parse_caption(text: str, profile_id: str) -> Json:
    """The caption in a model's answer. Raises ValueError with the reason why it is invalid."""
    try:
        data = json.loads(strip_fence(text))
    except ValueError as error:
        raise ValueError(f"no JSON: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f"no JSON object but {type(data).__name__}")
    try:
        caption = Caption.model_validate({**data, "profile_id": profile_id})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "caption"
        raise ValueError(f"{where}: {first['msg']}") from None
    found = caption.model_dump(by_alias=True, exclude_none=True)
    return {**found, "key_points": found["key_points"][:MAX_KEY_POINTS]}


def unknown_caption(profile_id: str, alt_text: str, why: str) -> Json:
    """The caption of an image of which only the alternative text is known."""
    return {
        "profile_id": profile_id,
        "image_type": "unknown",
        "summary": alt_text,
        "key_points": [],
        "entities": [],
        "numbers": [],
        "uncertainties": [why],
    }


def plain_text(caption: Json, inject: str) -> str:
    """One line for views: the summary, and with `full` everything except the uncertainties."""
    parts = [caption["summary"]]
    if inject == "full":
        parts += caption["key_points"]
        known = " ".join(parts)
        parts += [item for item in caption["entities"] if item not in known]
        parts += [
            " ".join(str(number.get(key) or "") for key in ("name", "value", "unit")).strip()
            for number in caption["numbers"]
        ]
        parts += _strings({key: caption.get(key) for key in _PROFILE_FIELDS})
    return "; ".join(
        dict.fromkeys(
            " ".join(str(part).split()).rstrip(";。.；") for part in parts if str(part).strip()
        )
    )


_PROFILE_FIELDS = ("table", "kv_pairs", "chart", "steps", "nodes", "edges", "ui", "scene_tags")


def _strings(value: Any, key: str = "") -> list[str]:
    """The texts in nested fields, without the ids that link steps, boxes and arrows."""
    if isinstance(value, dict):
        return [text for name, item in value.items() for text in _strings(item, name)]
    if isinstance(value, list):
        if key == "rows" and all(isinstance(row, list) for row in value):
            return [" ".join(str(cell) for cell in row if str(cell).strip()) for row in value]
        return [text for item in value for text in _strings(item, key)]
    return [str(value)] if value and key not in ("id", "from", "to") else []


_WORDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.I))
    for kind, pattern in (
        (
            "table",
            r"表格|一览表|(?<![代图列仪手外发])表\s?[\d一二三四五六七八九十]|\btables?\b|\btabular\b",
        ),
        (
            "chart",
            r"趋势|曲线|折线|柱状|饼图|直方|散点|图表|统计图|\bcharts?\b|\bplots?\b|\bgraphs?\b|\btrends?\b|\bcurves?\b|histogram",
        ),
        ("flowchart", r"流程|步骤|flow[ _-]?charts?|\bwork[ _-]?flow\b|\bflow\b"),
        (
            "diagram",
            r"架构|结构图|示意|拓扑|时序图|\bdiagrams?\b|\barchitectures?\b|schematic|topology|pipeline",
        ),
        (
            "screenshot",
            r"截图|截屏|界面|窗口|screen[ _-]?shots?|\bscreen\b|\bdialog\b|\bui\b|\bconsole\b",
        ),
        ("photo", r"照片|实拍|\bphotos?\b|photograph"),
    )
)
_ANALYSED_PIXELS = 400  # longer side of the image that `looks_like_photo` analyses


def classify_by_words(*texts: str) -> str:
    """The image type named by the first text with a known word, else `unknown`."""
    for text in texts:
        spaced = re.sub(r"[_./\\-]+", " ", text)
        places = [
            (found.start(), kind) for kind, pattern in _WORDS if (found := pattern.search(spaced))
        ]
        if places:
            return min(places)[1]
    return "unknown"


def looks_like_photo(path: Path) -> bool:
    """True for an image with many colours and little even background."""
    import numpy as np
    from PIL import Image

    with Image.open(path) as opened:
        image = opened.convert("RGB")
    image.thumbnail((_ANALYSED_PIXELS, _ANALYSED_PIXELS))
    pixels = np.asarray(image)
    if min(pixels.shape[:2]) < 20:
        return False
    grey = pixels.mean(axis=2)
    background = float(np.median(grey))
    flat = float((abs(grey - background) < 12).mean())
    colours = len(np.unique(pixels.reshape(-1, 3) // 16, axis=0))
    return flat < 0.35 and colours > 250
