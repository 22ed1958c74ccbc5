"""Builds the output of each stage for one version, from raw bytes to views, and reads it back.

The path of each output contains its profile, so existing outputs are reused, and switching a config
back costs nothing. The last file that a stage writes marks it complete, so a crash never leaves an
output that looks finished. A stage passes its output to the next one in memory; only reused outputs
are read from disk.
"""

from __future__ import annotations

import logging
import math
import re
import time
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from rag_platform.chunkers.chunks import beyond_window, chunk_hash, chunker_of, cut
from rag_platform.config.profiles import STAGE_CODE_VERSIONS, stage_profiles, text_norm_profile_id
from rag_platform.config.settings import Settings, Strategy
from rag_platform.documents.descriptions import Descriptions, describe
from rag_platform.documents.drift import chunk_quality
from rag_platform.documents.kept_text import find_removed, measure, verdict, word_counts
from rag_platform.documents.outputs import Outputs
from rag_platform.documents.stage_previews import preview_stage
from rag_platform.documents.views import keyphrase_embedder, low_quality, make_views
from rag_platform.errors import DocumentError, IntegrityError
from rag_platform.intake import loading
from rag_platform.ir import (
    Block,
    Chunk,
    Edit,
    Facts,
    Json,
    MediaLink,
    MediaRef,
    MediaText,
    PageKept,
    Section,
    StageOutcome,
    Version,
    View,
)
from rag_platform.loaders.images import explain
from rag_platform.media import image_reading
from rag_platform.media.store import BLANK, Base, resolve
from rag_platform.normalisation.edits import normalise
from rag_platform.observability import faults, tracing
from rag_platform.registry import make_provider, provider_version, traits
from rag_platform.sectioners.sections import headings_of, section_hash
from rag_platform.storage.store import Store, Writes, read_records, sha256_file
from rag_platform.text.wording import pluralise

OnProgress = Callable[[int, int], None]
Failure = tuple[str, Exception]  # (stage, error)
Done = tuple[Path, str, Json, tuple[str, ...]]  # path, sha256, counts, warnings

# Bounds of the histogram of chunk sizes, in tokens.
_HISTOGRAM_TOKENS = (32, 64, 128, 256, 512, 1024)
_LONG_SECONDS = 1.0  # the output of a slower stage is committed at once, even when deferred
_SHOWN_LEFT_OUT = 5  # targets of images in a warning


@dataclass(eq=False)
class VersionBuild(Outputs):
    """The inputs of one version's stages, and their outputs.

    `origin` is the path of the source file and `root` the folder of its source, to find images that
    it references. With `deferred`, outputs become visible when the caller commits `writes`,
    otherwise at the end of each stage.
    """

    version: Version
    strategy: Strategy
    settings: Settings
    store: Store
    origin: Path | None = None
    root: Path | None = None
    force: bool = False
    on_page: OnProgress | None = None
    on_image: Callable[[str, int, int], None] | None = None
    deferred: bool = False
    base_url: str = ""  # the final URL after redirects
    decision: str = "continue"  # of receiving: new, new_version or continue
    reading: Future[Facts] | None = None  # facts that another thread reads in advance
    built: Future[Any] | None = None  # the `Built` of a child process that runs all stages
    writes: Writes = field(default_factory=Writes)
    profiles: Mapping[str, str] = field(default_factory=dict)  # if empty: those of the strategy

    def __post_init__(self) -> None:
        self.profiles = self.profiles or stage_profiles(self.strategy)


def reading_warnings(work: VersionBuild) -> tuple[str, ...]:
    """The loader's warnings, without advice to turn on OCR if it is on."""
    is_on = work.strategy.media_texts.ocr.provider != "none"
    return tuple(it for it in work.summary.warnings if not (is_on and "media_texts.ocr" in it))


# --- the stages, in order -----------------------------------------------------------------------


def build_raw_document(work: VersionBuild) -> Done:
    """Check the stored bytes against their hash. Raises IntegrityError."""
    path = work.store.raw_path(work.version.file_sha256)
    if not path.is_file():
        raise IntegrityError(
            f"the bytes of {work.version.version_id} are gone from the store; ingest the file"
            " again",
            code="raw_missing",
        )
    if (found := sha256_file(path)) != work.version.file_sha256:
        raise IntegrityError(
            f"the stored bytes of {work.version.version_id} have hash {found[:12]}; ingest the file"
            " again",
            code="raw_changed",
        )
    version = work.version
    decision = {
        "doc_id": version.doc_id,
        "version_id": version.version_id,
        "file_sha256": version.file_sha256,
        "decision": work.decision,
    }
    tracing.event("ingest.dedup_decision", decision)
    tracing.describe(file_sha256=version.file_sha256, dedup_decision=work.decision)
    counts = {
        "bytes": version.size,
        "mime": version.mime,
        "hash_alg_id": "sha256",
        "revision": version.revision,
    }
    return path, version.file_sha256, counts, ()


def build_facts(work: VersionBuild) -> Done:
    """Build facts, blocks and media references."""
    version, folder = work.version, work.facts_folder
    if work.force or not work.summary_path.is_file():
        facts = work.reading.result() if work.reading else read_facts(work)
        work.writes.text(folder / "facts.md", facts.text)
        work.writes.records(folder / "blocks.parquet", Block, facts.blocks)
        work.writes.records(folder / "media.parquet", MediaRef, facts.media)
        work.writes.json(work.summary_path, facts.summary)
        work.facts = facts
    summary = work.facts.summary
    pages_out = {block.page for block in work.facts.blocks if block.page is not None}
    pages_out.update(summary.pages_without_text)
    counts = {
        "loader": summary.loader_name,
        "pages": summary.pages,
        "paragraphs": summary.paragraphs,
        "blocks": len(work.facts.blocks),
        "images": summary.images,
        "text_chars": summary.text_chars,
        "encoding": summary.encoding,
        "pages_without_text": len(summary.pages_without_text),
        "pages_failed": len(summary.errors),
        "hidden_words": sum(len(item.text.split()) for item in summary.hidden),
        "pages_out": len(pages_out),
    }
    tracing.event(
        "ingest.parse_summary",
        {"version_id": version.version_id, **counts, "warnings": list(summary.warnings)},
    )
    tracing.describe(
        loader_id=f"loader.{summary.loader_name}",
        parse_profile_id=summary.parse_profile,
        parse_summary={name: counts[name] for name in ("pages", "text_chars", "images", "blocks")},
    )
    tracing.ext(
        f"loader.{summary.loader_name}",
        engine=summary.parser_engine,
        engine_version=summary.engine_version,
        lossy=summary.lossy,
    )
    return folder, summary.md_sha256, counts, reading_warnings(work)


def read_facts(work: VersionBuild) -> Facts:
    """Read the facts with the version's loader; nothing is written. Raises DocumentError."""
    version = work.version
    path = work.store.raw_path(version.file_sha256)
    limits = work.settings.limits
    with faults.about(version.version_id):
        return loading.load(
            path,
            version.filename,
            version.loader,
            work.strategy,
            limits,
            work.on_page,
            charset=version.charset,
            kept=None if work.force else work.store.pages_path(version, work.profiles["facts"]),
        )


def read_in_child(version: Version) -> bool:
    """True when a child process reads the format, so that documents can be read in parallel."""
    return traits("loader", version.loader).isolated


def build_media(work: VersionBuild) -> Done:
    """Resolve images to stored assets, and read them with models where the strategy wants it."""
    path, new = work.path("media"), set[str]()
    if fresh := work.force or not path.is_file():
        work.links = resolve(
            work.facts,
            work.store.raw_path(work.version.file_sha256),
            work.store,
            work.strategy.media,
            _base(work),
            work.settings.limits,
            work.settings.fetching,
            new.add,
        )
    texts_path, config = work.path("media_texts"), work.strategy.media_texts
    if image_reading.is_wanted(config) and (work.force or not texts_path.is_file()):
        work.media_texts = image_reading.read_images(
            work.facts, work.links, work.store, config, work.on_image
        )
        work.writes.records(texts_path, MediaText, work.media_texts)
    _require_image(work)
    sha256 = work.writes.records(path, MediaLink, work.links) if fresh else sha256_file(path)
    failed = [link for link in work.links if not link.asset_id and link.reason != BLANK]
    found = {link.asset_id for link in work.links if link.asset_id}
    counts = {
        "assets_total": len(work.links),
        "assets_failed": len(failed),
        "assets": len(found),
    }
    payload = {
        "version_id": work.version.version_id,
        "asset_ids": sorted(found)[:50],
        "failed": [
            # not origin_ref, which may contain text of the document
            {"ref_id": link.ref_id, "error_code": link.reason.partition(": ")[0]}
            for link in failed[:50]
        ],
    }
    tracing.event("ingest.assets_manifest", payload)
    tracing.describe(assets_new=len(new), assets_reused=len(found - new))
    tracing.count(assets_total=len(work.links), failed_assets=len(failed))
    warnings = _name_left_out(failed)
    if image_reading.is_wanted(config):
        counts |= image_reading.counts_of(work.media_texts)
        warnings += image_reading.warnings_of(work.media_texts, work.links)
    return path, sha256, counts, warnings


def _name_left_out(failed: Sequence[MediaLink]) -> tuple[str, ...]:
    """A line for each reason, with the number of images and those that are used most."""
    targets: dict[str, Counter[str]] = defaultdict(Counter)
    for link in failed:
        targets[explain(link.reason)][link.origin_ref[:200]] += 1
    lines = []
    for reason, found in targets.items():
        shown = found.most_common(_SHOWN_LEFT_OUT)
        named = [target if uses == 1 else f"{target} ×{uses}" for target, uses in shown]
        more = ["…"] if len(found) > len(shown) else []
        images = pluralise(found.total(), "image")
        lines.append(f"{images} left out ({reason}): {', '.join(named + more)}")
    return tuple(lines)


def _require_image(work: VersionBuild) -> None:
    """Raise DocumentError for an image file whose image could not be decoded."""
    if (
        work.facts.text.strip()
        or not work.links
        or any(link.asset_id or link.origin_ref != "file:" for link in work.links)
    ):
        return
    code, _, why = work.links[0].reason.partition(": ")
    config = work.strategy.media
    detail = {
        "too_many_pixels": (
            f"it has more than media.max_pixels = {config.max_pixels} pixels; make it smaller, or"
            " raise that"
        ),
        "too_large": (
            f"it is above media.max_bytes = {config.max_bytes}; make it smaller, or raise that"
        ),
        "type_not_read": f"images of type {why} are not read; save it as PNG",
    }.get(code, f"{why or 'its content is damaged'}; save it again")
    known = "too_large" if code.startswith("too_") else "broken_file"
    raise DocumentError(f"{work.version.filename} cannot be read as an image: {detail}", code=known)


def _base(work: VersionBuild) -> Base:
    """The base against which the document's relative references are resolved."""
    uri = work.version.source_uri
    if uri.lower().startswith(("http://", "https://")):
        own = str(work.facts.summary.metadata.get("base_url", ""))
        return Base(url=urljoin(work.base_url or uri, own))
    folder = work.origin.parent if work.origin else None
    return Base(folder, work.root or folder)


def build_sections(work: VersionBuild) -> Done:
    """Store the edits of normalisation, and cut the normalised text into sections."""
    path, edits_path = work.path("sections"), work.path("edits")
    config = work.strategy.sectioner
    if work.force or not path.is_file():
        headings = headings_of(work.facts, work.normalised)
        sectioner = make_provider("sectioner", config.provider, config.options)
        work.sections = list(
            sectioner.sections(work.normalised.text, headings, work.version.doc_id)
        )
        work.writes.records(edits_path, Edit, work.normalised.edits)
        sha256 = work.writes.records(path, Section, work.sections)
    else:
        sha256 = sha256_file(path)
    dropped = word_counts(find_removed(work.facts, work.normalised))
    counts = {
        "section_count": len(work.sections),
        "section_hash": section_hash(work.sections, work.normalised.text),
        "edits": len(work.normalised.edits),
        "removed_chars": len(work.facts.text) - len(work.normalised.text),
        **{f"dropped_{reason}": words for reason, words in dropped.items()},
    }
    tracing.event("ingest.section_stats", counts)
    tracing.describe(sectioner_id=f"sectioner.{config.provider}")
    tracing.count(sections_total=len(work.sections))
    return path, sha256, counts, ()


def build_chunks(work: VersionBuild) -> Done:
    """Cut the sections into chunks with their provenance."""
    path = work.path("chunks")
    if fresh := work.force or not path.is_file():
        chunker = chunker_of(work.strategy)
        work.chunks = cut(
            work.version,
            work.facts,
            work.normalised,
            work.sections,
            chunker,
            work.strategy,
            work.links,
        )
        sha256 = work.writes.records(path, Chunk, work.chunks)
    else:
        sha256 = sha256_file(path)
    rows = work.chunks
    quality = chunk_quality(work.normalised.text, rows)
    beyond, long_warnings = beyond_window(rows, work.strategy)
    counts = {
        "chunk_count": len(rows),
        "chunk_hash": chunk_hash(rows),
        "tokens": sum(chunk.token_count for chunk in rows),
        **{name: value for name, value in quality.counts().items() if name != "chunks"},
        "beyond_window": beyond,
        **(kept := verdict(_measure_kept(work, fresh), work.settings.text_kept)),
    }
    histogram = size_histogram([chunk.token_count for chunk in rows])
    tracing.event("ingest.chunk_stats", {**counts, "size_histogram": histogram})
    tracing.describe(chunker_id=f"chunker.{work.strategy.chunker.provider}")
    tracing.count(chunks_total=len(rows))
    warnings = [] if rows else ["the document has no chunk: nothing of it can be found"]
    if kept and kept["text_kept_state"] != "kept":
        warnings.append(f"text may be missing: {kept['text_kept_details']}")
    return path, sha256, counts, (*warnings, *long_warnings)


def _measure_kept(work: VersionBuild, fresh: bool) -> list[PageKept]:
    """How much of each page's text is in the chunks. Formats with pages are measured only when the
    chunks are cut, and the result is stored.
    """
    path, paged = work.path("kept"), work.facts.summary.pages > 0
    if paged and not fresh:
        return read_records(path, PageKept) if path.is_file() else []
    raw, limits = work.store.raw_path(work.version.file_sha256), work.settings.limits
    try:
        rows = measure(raw, work.version.loader, work.facts, work.normalised, work.chunks, limits)
    # a failure of the second reader says nothing about the chunks
    except DocumentError as error:
        logging.getLogger(__name__).warning(
            "%s: text_kept was not measured: [%s] %s",
            work.version.version_id,
            error.code,
            error.message,
        )
        return []
    if paged:
        work.writes.records(path, PageKept, rows)
    return rows


def build_views(work: VersionBuild) -> Done:
    """Build the dense and sparse retrieval texts."""
    path = work.path("views")
    config = work.strategy.views
    if work.force or not path.is_file():
        descriptions = describe(work.chunks, config.describe, work.store.descriptions_path)
        work.views = views_of(work, work.chunks, descriptions)
        sha256 = work.writes.records(path, View, work.views)
    else:
        descriptions, sha256 = Descriptions(), sha256_file(path)
    counts = {
        "views": len(work.views),
        "with_text": sum(bool(view.dense_text.strip()) for view in work.views),
        **(descriptions.counts if config.describe.provider != "none" else {}),
    }
    tracing.describe(
        enrich_profile_id=work.profiles["views"],
        metadata_fields_injected=sum(_count_fields(view) for view in work.views),
        enriched_assets=sum(bool(text.ocr_text or text.caption) for text in work.media_texts),
        ocr_success=sum(bool(text.ocr_text) for text in work.media_texts),
        caption_success=sum(bool(text.caption) for text in work.media_texts),
        llm_provider_id=f"llm.{config.describe.provider}",
    )
    return (
        path,
        sha256,
        counts,
        (*low_quality(work.chunks, work.views, config.quality), *descriptions.warnings),
    )


def views_of(work: VersionBuild, chunks: Sequence[Chunk], descriptions: Descriptions) -> list[View]:
    """The retrieval texts of chunks of this version, with their descriptions by a model."""
    config = work.strategy.views
    return make_views(
        chunks,
        config,
        work.strategy.cleaning,
        {text.asset_id: text for text in work.media_texts},
        descriptions=descriptions.found,
        embedder=keyphrase_embedder(work.strategy),
    )


def _count_fields(view: View) -> int:
    """The number of filled fields of a view besides its texts."""
    extra = (view.keyphrases, view.title, view.summary, view.tags, view.quality_score is not None)
    return sum(map(bool, extra))


def size_histogram(tokens: Sequence[int]) -> dict[str, int]:
    """Label of a bin (`<32`, ..., `>=1024` tokens) to its number of chunks; empty bins are left
    out.
    """
    bounds = [*_HISTOGRAM_TOKENS, math.inf]
    counts = [0] * len(bounds)
    for count in tokens:
        counts[bisect_right(bounds, count)] += 1
    names = [*(f"<{bound}" for bound in _HISTOGRAM_TOKENS), f">={_HISTOGRAM_TOKENS[-1]}"]
    return {name: count for name, count in zip(names, counts, strict=True) if count}


STAGES: dict[str, tuple[str, str, Callable[[VersionBuild], Done]]] = {
    # stage to (name of its trace span, provider type, function)
    "raw_document": ("stage.dedup", "store", build_raw_document),
    "facts": ("stage.loader", "loader", build_facts),
    "media": ("stage.asset_normalize", "asset_normalizer", build_media),
    "sections": ("stage.sectioner", "sectioner", build_sections),
    "chunks": ("stage.chunker", "chunker", build_chunks),
    "views": ("stage.transform_post", "transformer", build_views),
}


def build_stage(stage: str, work: VersionBuild) -> StageOutcome:
    """Run one stage, or reuse its existing output, within a trace span. Raises RagError."""
    span_name, _, function = STAGES[stage]
    started = time.perf_counter()
    reused = not work.force and marker(stage, work).is_file()
    version_id = work.version.version_id
    if stage == "sections":
        _normalise(work)
    with (
        faults.about(version_id),
        tracing.span(
            span_name,
            **_provider(stage, work),
            profile_id=work.profiles[stage],
            version_id=version_id,
        ) as span,
    ):
        complete = len(work.writes)
        try:
            path, sha256, counts, warnings = function(work)
        except BaseException:
            work.writes.discard(keep=complete)
            raise
        if not work.deferred or time.perf_counter() - started > _LONG_SECONDS:
            work.writes.commit()
        span.set(reused=reused, **counts)
    relative = path.relative_to(work.store.home).as_posix()
    return StageOutcome(
        stage,
        work.profiles[stage],
        reused,
        time.perf_counter() - started,
        relative,
        sha256,
        counts,
        tuple(warnings),
        preview_stage(stage, work, work.settings.limits, fresh=not reused),
    )


def _normalise(work: VersionBuild) -> None:
    """Normalise the text, within its own trace span, if the sections stage will run."""
    if not work.force and work.path("sections").is_file():
        return
    version_id, cleaning = work.version.version_id, work.strategy.cleaning
    with (
        faults.about(version_id),
        tracing.span(
            "stage.transform_pre",
            provider_type="transformer",
            provider_id="edits",
            provider_version=STAGE_CODE_VERSIONS["sections"],
            profile_id=text_norm_profile_id(cleaning),
            version_id=version_id,
        ) as span,
    ):
        facts, found = work.facts, normalise(work.facts, work.links, cleaning)
        work.normalised = found
        breaks = [match.start() for match in re.finditer("\n", facts.text)]
        lines = {
            line
            for edit in found.edits
            for line in range(bisect_left(breaks, edit.start), bisect_left(breaks, edit.end) + 1)
        }
        span.set(
            edits=len(found.edits),
            removed_chars=sum(edit.end - edit.start for edit in found.edits),
            normalized_lines=len(lines),
            deduped_headers=sum(edit.rule.startswith("repeated_") for edit in found.edits),
        )


def build_stages(
    stages: Sequence[str], work: VersionBuild
) -> tuple[list[StageOutcome], Failure | None]:
    """Run the stages up to the views: (their outcomes, the failure that stopped them)."""
    outcomes: list[StageOutcome] = []
    for stage in (stage for stage in stages if stage in STAGES):
        with faults.Attempt(f"stage.{stage}") as attempt:
            outcomes.append(build_stage(stage, work))
        if attempt.error is not None:
            return outcomes, (stage, attempt.error)
    return outcomes, None


def marker(stage: str, work: VersionBuild) -> Path:
    """The file whose presence marks the stage complete."""
    if stage == "raw_document":
        return work.store.raw_path(work.version.file_sha256)
    if stage == "facts":
        return work.summary_path
    if (
        stage == "media"
        and image_reading.is_wanted(work.strategy.media_texts)
        and not work.path("media_texts").is_file()
    ):
        return work.path("media_texts")
    return work.path(stage)


def _provider(stage: str, work: VersionBuild) -> dict[str, str]:
    """The span attributes that name a stage's provider."""
    kind = STAGES[stage][1]
    names = {
        "loader": work.version.loader,
        "sectioner": work.strategy.sectioner.provider,
        "chunker": work.strategy.chunker.provider,
        "transformer": "views",
    }
    name = names.get(kind, "sha256")
    # the store and the image stage have one implementation, versioned with the stage
    known = kind in names and kind != "transformer"
    version = provider_version(kind, name) if known else STAGE_CODE_VERSIONS[stage]
    return {"provider_type": kind, "provider_id": name, "provider_version": version}
