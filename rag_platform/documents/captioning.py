"""Captions of images by a language model that sees: routing, context, the call, and what happens when it fails (seed 000 §3.6.5-3.6.7)."""

from __future__ import annotations

import contextvars
import io
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from rag_platform import prompts
from rag_platform.config import CaptionConfig, fingerprint
from rag_platform.documents import caption_contract, caption_routing
from rag_platform.documents.media import display_path
from rag_platform.errors import ProviderError
from rag_platform.ir import Block, Facts, Json, MediaLink
from rag_platform.observability import tracing
from rag_platform.protocols import LLM, Picture
from rag_platform.records import SCHEMA_VERSION
from rag_platform.registry import build, provider_version
from rag_platform.store import Store, read_json, write_json

FIELDS = ("context", "lang")
_LANGUAGES = {"zh": "Chinese (简体中文)", "en": "English", "auto": "the language of the text in the image, else of the context"}
_QWEN = {"base_url": "https://dashscope.aliyuncs.com/compatible-mode/v1", "api_key_env": "DASHSCOPE_API_KEY"}
_GEMINI = {
    "base_url": "https://generativelanguage.googleapis.com/v1beta/openai/",
    "api_key_env": "GEMINI_API_KEY",
    "model": "gemini-2.5-pro",
}
PRESETS: dict[str, tuple[Json, ...]] = {  # options of the provider `openai`, the first choice and what stands in for it (seed 000 §3.6.5)
    "abroad": ({"model": "gpt-4o"}, {**_QWEN, "model": "qwen-vl-max"}),
    "abroad_batch": (_GEMINI, {**_QWEN, "model": "qwen-vl-plus"}),
    "china": ({**_QWEN, "model": "qwen-vl-max"}, {"model": "gpt-4o"}),
    "china_batch": ({**_QWEN, "model": "qwen-vl-plus"}, _GEMINI),
}
_SENT_PIXELS = 1568  # longest side of what a model is sent
_SENT_BYTES = 1_500_000
_HOPELESS = ("missing_key", "no_model", "unauthorized", "forbidden", "model_not_found")  # no other image would fare better


@dataclass(frozen=True, slots=True)
class Captioned:
    """The caption of one image: its line for views, its JSON, and what it hangs on."""

    text: str = ""
    json: str = ""
    profile_id: str = ""
    context_hash: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Asked:
    """One image with everything a model is told of it."""

    link: MediaLink
    picture: Path
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
) -> dict[str, Captioned]:
    """asset_id to caption, for the images that are large enough; one that fails is `unknown` with its uncertainties and a warning.

    A caption is kept beside its image by (profile, model, context, language) and asked for once. Raises ConfigError for a bad prompt file
    or an unknown provider.
    """
    choices = models(config)
    if not choices:
        with tracing.span("stage.caption", provider_type="llm", provider_id="none", provider_version=provider_version("llm", "none")):
            return {}
    large = [link for link in images if link.width * link.height >= config.min_pixels]
    found = {link.asset_id: Captioned(warnings=("not captioned: above media_texts.captions.max_images_per_doc",))
             for link in large[config.max_images_per_doc :]}  # fmt: skip
    asked = [item for link in large[: config.max_images_per_doc] if (item := _asked(link, facts, store, config))]
    provider = choices[0][0]
    with tracing.span(
        "stage.caption", provider_type="llm", provider_id=provider, provider_version=provider_version("llm", provider)
    ) as span:
        speakers = [(name, options, build("llm", name, options)) for name, options in choices]
        work = _Captioning(store, config, speakers)
        with ThreadPoolExecutor(config.parallel, thread_name_prefix="caption") as threads:
            futures = [threads.submit(contextvars.copy_context().run, work.one, item) for item in asked]
            for number, (item, future) in enumerate(zip(asked, futures, strict=True)):
                found[item.link.asset_id] = future.result()
                if on_image:
                    on_image("describing", number + 1, len(asked))
        span.set(images=len(asked), reused=work.reused, failed=sum(bool(x.warnings) for x in found.values()), cost=work.cost or None)
    return found


def models(config: CaptionConfig) -> list[tuple[str, Json]]:
    """(provider, options) of the model to ask and of those that stand in for it, none when captions are off; the strategy's options win."""
    if config.preset:
        name = "openai" if config.provider == "none" else config.provider
        return [(name, {**options, **config.options}) for options in PRESETS[config.preset]]
    return [] if config.provider == "none" else [(config.provider, dict(config.options))]


def _asked(link: MediaLink, facts: Facts, store: Store, config: CaptionConfig) -> _Asked | None:
    picture = display_path(store, link.asset_id)
    if picture is None:
        return None
    ref = next((ref for ref in facts.media if ref.ref_id == link.ref_id and ref.origin_ref == link.origin_ref), None)
    alt_text = ref.context_hint if ref else ""
    context = local_context(facts, link, config.context_chars) if config.context_scope == "local" else ""
    name = "" if link.origin_ref.startswith(("pdf:", "data:")) else PurePosixPath(link.origin_ref).stem
    kind = caption_routing.by_words(alt_text, name, context)
    if kind == "unknown":
        kind = caption_routing.by_picture(picture)
    prompt = prompts.load(caption_contract.PROFILES[kind], FIELDS)
    return _Asked(link, picture, alt_text, context, fingerprint(config.context_scope, context), prompt)


def local_context(facts: Facts, link: MediaLink, limit: int) -> str:
    """The headings above an image and the paragraph that holds it with its neighbours, at most `limit` characters; on a page without a
    reference the three blocks nearest to the image (seed 000 §3.6.6.2)."""
    blocks = [block for block in facts.blocks if block.kind not in ("header", "footer", "front_matter")]
    if link.start is not None:
        at = next((i for i, block in enumerate(blocks) if block.start <= (link.start or 0) < block.end), None)
        near = blocks[max(0, at - 1) : at + 2] if at is not None else []
    elif link.bbox is not None:
        here = [block for block in blocks if block.page == link.page and block.bbox is not None]
        near = sorted(sorted(here, key=lambda block: _distance(block, link))[:3], key=lambda block: block.start)
    else:
        near = []
    said = "\n".join([link.heading_path, *(facts.text[block.start : block.end] for block in near)]).strip()
    return said[:limit]


def _distance(block: Block, link: MediaLink) -> float:
    assert block.bbox is not None and link.bbox is not None
    return max(0.0, block.bbox[1] - link.bbox[3], link.bbox[1] - block.bbox[3])


@dataclass
class _Captioning:
    """The calls for one document, from several threads."""

    store: Store
    config: CaptionConfig
    speakers: Sequence[tuple[str, Mapping[str, Any], LLM]]
    reused: int = 0
    cost: float = 0.0
    hopeless: ProviderError | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def one(self, item: _Asked) -> Captioned:
        """The caption of one image: kept, asked for, or unknown."""
        prompt = item.prompt
        first = fingerprint(*[(name, dict(options)) for name, options, _ in self.speakers])
        key = fingerprint(prompt.profile_id, first, item.context_hash, self.config.lang)
        path = self.store.media_text_path(item.link.asset_id, f"caption-{key}")
        if path.is_file():
            self._count(reused=1)
            return self._made(caption_contract.checked(json.dumps(read_json(path)["caption"]), prompt.profile_id), item)
        try:
            text, name, model = self._answer(item)
            caption = caption_contract.checked(text, prompt.profile_id)
        except ProviderError as error:
            return self._failed(item, error.code, error.message)
        except ValueError as error:
            return self._failed(item, "invalid_output", str(error))
        kept = {"model_id": model, "provider_id": name, "context_hash": item.context_hash, "lang": self.config.lang, "caption": caption}
        write_json(path, {"schema_version": SCHEMA_VERSION, "asset_id": item.link.asset_id, "profile_id": prompt.profile_id, **kept})
        self._told(item, name, model, "")
        return self._made(caption, item)

    def _count(self, *, reused: int = 0, cost: float = 0.0) -> None:
        with self.lock:
            self.reused += reused
            self.cost += cost

    def _answer(self, item: _Asked) -> tuple[str, str, str]:
        """(text, provider, model) of the first model that answers. Raises the last ProviderError when none does."""
        if self.hopeless is not None:
            raise self.hopeless
        context, lang = item.context or "(none)", _LANGUAGES[self.config.lang]
        messages = item.prompt.messages((sent_picture(item.picture),), context=context, lang=lang)
        errors: list[ProviderError] = []
        for name, _, speaker in self.speakers:
            try:
                completion = speaker.generate(messages, mode="offline", json_schema=caption_contract.schema())
            except ProviderError as error:
                errors.append(error)
                continue
            self._count(cost=completion.cost or 0.0)
            return completion.text, name, completion.model
        if all(error.code in _HOPELESS for error in errors):
            self.hopeless = errors[0]
        raise errors[0]

    def _made(self, caption: Json, item: _Asked) -> Captioned:
        text = caption_contract.plain_text(caption, self.config.inject)
        return Captioned(text, json.dumps(caption, ensure_ascii=False), item.prompt.profile_id, item.context_hash)

    def _failed(self, item: _Asked, code: str, message: str) -> Captioned:
        self._told(item, self.speakers[0][0], "", code)
        caption = caption_contract.unknown(item.prompt.profile_id, item.alt_text, f"no caption: {code}")
        said = f"caption failed ({code}): {message[:200]}"
        return Captioned("", json.dumps(caption, ensure_ascii=False), item.prompt.profile_id, item.context_hash, (said,))

    def _told(self, item: _Asked, provider: str, model: str, code: str) -> None:
        said = {"caption_provider_id": provider, "model_id": model, "caption_profile_id": item.prompt.profile_id, "error_code": code}
        where = {"context_scope": self.config.context_scope, "context_hash": item.context_hash}
        tracing.event("caption.generated", {"asset_id": item.link.asset_id, **said, **where})


def sent_picture(path: Path) -> Picture:
    """The image as a model is sent it: as it is where it is small, else as a JPEG of at most 1568 pixels each way."""
    from PIL import Image

    with Image.open(path) as opened:
        kind = str(opened.format)
        if max(opened.size) <= _SENT_PIXELS and path.stat().st_size <= _SENT_BYTES and not getattr(opened, "is_animated", False):
            return Picture(path.read_bytes(), Image.MIME[kind])
        flat = Image.new("RGB", opened.size, "white")
        drawn = opened.convert("RGBA")
        flat.paste(drawn, mask=drawn.getchannel("A"))
    flat.thumbnail((_SENT_PIXELS, _SENT_PIXELS))
    stream = io.BytesIO()
    flat.save(stream, "JPEG", quality=85)
    return Picture(stream.getvalue(), "image/jpeg")
