"""Previews the result of ingesting a file, without storing anything."""

from __future__ import annotations

import hashlib
import tempfile
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from rag_platform.config.ingestion import MediaTextConfig
from rag_platform.config.settings import Settings, Strategy
from rag_platform.documents.drift import ChunkQuality, chunk_quality
from rag_platform.documents.versions import VersionBuild, build_stage
from rag_platform.errors import InputError
from rag_platform.intake import loading
from rag_platform.ir import Chunk, Json, MediaLink, StageOutcome, Version, format_section
from rag_platform.messages import translate, translate_filled
from rag_platform.storage.store import Store

STAGES = ("raw_document", "facts", "media", "sections", "chunks")
_EDGE = 72  # columns shown of each end of a chunk's text


@dataclass(frozen=True, slots=True)
class Preview:
    """A version whose outputs are only in memory, and the outcomes of its stages."""

    work: VersionBuild
    outcomes: Sequence[StageOutcome]

    @property
    def quality(self) -> ChunkQuality:
        """The measures of the chunks."""
        return chunk_quality(self.work.normalised.text, self.work.chunks)

    @property
    def edits(self) -> dict[str, int]:
        """Rule to number of edits."""
        return dict(Counter(edit.rule for edit in self.work.normalised.edits))

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(warning for outcome in self.outcomes for warning in outcome.warnings)


def preview(
    path: Path,
    strategy: Strategy,
    settings: Settings,
    on_page: Callable[[int, int], None] | None = None,
) -> Preview:
    """The preview of a file up to its chunks; images are not read by models.

    The stages of an ingest run in a temporary folder; the data root is neither read nor written.
    Raises InputError if `path` is not a file, DocumentError like an ingest.
    """
    path = path.expanduser().resolve()
    if not path.is_file():
        raise InputError(f"{path} is no file; name one file to preview", code="no_such_path")
    strategy = strategy.model_copy(update={"media_texts": MediaTextConfig()})
    with open(path, "rb") as opened, tempfile.TemporaryDirectory(prefix="rag-preview-") as folder:
        loader, mime = loading.choose(path, path.name, strategy)
        store = Store(Path(folder))
        sha256, size = store.spool(
            opened, settings.limits.read_chunk_size_bytes, settings.limits.max_bytes
        )
        doc_id = "preview-" + hashlib.sha256(path.name.encode()).hexdigest()[:10]
        version = Version(
            f"preview.{doc_id}@{sha256[:12]}",
            "preview",
            doc_id,
            f"files/{path.name}",
            path.name,
            sha256,
            size,
            mime,
            loader,
            strategy.name,
        )
        work = VersionBuild(
            version, strategy, settings, store, origin=path, root=path.parent, on_page=on_page
        )
        return Preview(work, [build_stage(stage, work) for stage in STAGES])


def preview_data(found: Preview, chunks: int | None = None, language: str = "en") -> Json:
    """The preview as JSON values, with a readable version in `language` under `markdown`; at most
    `chunks` chunks, None for all.
    """
    work, version, summary = found.work, found.work.version, found.work.summary
    omitted = ("doc_id", "version_id", "chunk_fingerprint", "title", "h1_title", "h2_title")
    return {
        "markdown": readable(found, chunks, language),
        "filename": version.filename,
        "mime": version.mime,
        "loader": version.loader,
        "strategy": version.strategy,
        "text_chars": len(work.normalised.text),
        "pages": summary.pages,
        "encoding": summary.encoding,
        "title": summary.title,
        "metadata": summary.metadata,
        "sections": [asdict(section) for section in work.sections],
        "chunks": [
            {name: value for name, value in asdict(chunk).items() if name not in omitted}
            for chunk in work.chunks[:chunks]
        ],
        "chunks_total": len(work.chunks),
        "media": [asdict(link) for link in work.links],
        "edits": found.edits,
        "quality": found.quality.counts(),
        "seconds": {outcome.stage: round(outcome.seconds, 3) for outcome in found.outcomes},
    }


def readable(found: Preview, chunks: int | None = None, language: str = "en") -> str:
    """The preview as text: measures, sections, the two ends of each chunk, images."""
    say = partial(translate, language=language)
    work, quality, version = found.work, found.quality, found.work.version
    measures = [
        say("{n} pages", n=work.summary.pages) if work.summary.pages else "",
        say("{n} characters", n=f"{len(work.normalised.text):,}"),
        say("{n} sections", n=len(work.sections)),
        say("{n} chunks", n=len(work.chunks)),
        say("{n} images", n=len(work.links)),
    ]
    coverage = "none" if quality.coverage is None else f"{quality.coverage:.1%}"
    lines = [
        say(
            "{file}: {measures} (strategy {name})",
            file=version.filename,
            measures=say(", ").join(filter(None, [version.loader, *measures])),
            name=version.strategy,
        ),
        say(
            "coverage {coverage}, overlap {overlap:.1%}, duplication {duplication:.1%}; characters"
            " of a chunk {least}-{most}, mean {mean:.0f} ± {deviation:.0f}",
            coverage=coverage,
            overlap=quality.overlap,
            duplication=quality.duplication,
            least=quality.min_chars,
            most=quality.max_chars,
            mean=quality.mean_chars,
            deviation=quality.std_chars,
        ),
    ]
    if edited := found.edits:
        edits = (f"{rule} {count}" for rule, count in sorted(edited.items()))
        lines.append(say("edits: {list}", list=", ".join(edits)))
    lines += ["", say("SECTIONS (characters, chunks, path)")]
    chunks_of = defaultdict[str, list[Chunk]](list)
    for chunk in work.chunks:
        chunks_of[chunk.section_id].append(chunk)
    for section in work.sections:
        start, end = section.norm_start, section.norm_end
        chunks_in = chunks_of[section.joined_to or section.section_id]
        if section.joined_to:
            chunks_in = [c for c in chunks_in if c.norm_start < end and start < c.norm_end]
        name = format_section(section.section_path) or say("(beginning)")
        lines.append(f"  {f'{start}-{end}':>15}  {len(chunks_in):>3}  {name}")
    lines += ["", say("CHUNKS")]
    for chunk in work.chunks[:chunks]:
        ends = (f"        {line}" for line in _ends(chunk.chunk_text))
        lines += [_headline(chunk, language), *ends]
    if chunks is not None and chunks < len(work.chunks):
        total = len(work.chunks)
        more = say("... and {n} more (--chunks {total} shows all)", n=total - chunks, total=total)
        lines.append(f"  {more}")
    if work.links:
        images = (f"  {_describe_image(link, language)}" for link in work.links)
        lines += ["", say("IMAGES"), *images]
    return "\n".join(lines)


def _headline(chunk: Chunk, language: str) -> str:
    say = partial(translate, language=language)
    marks = [
        f"{chunk.norm_start}-{chunk.norm_end}",
        say("{n} characters", n=chunk.text_len),
        say("about {n} tokens", n=chunk.token_count),
        _bounds("page", chunk.page_start, chunk.page_end, language),
        _bounds("line", chunk.line_start, chunk.line_end, language),
        "" if chunk.page_start else chunk.locator,
        chunk.lang,
        say("parent") if chunk.chunk_type == "parent" else "",
        say("image") if chunk.media_type == "image" else "",
        say("too short") if chunk.too_short and chunk.chunk_text else "",
    ]
    return f"  {chunk.chunk_index:>4}  {say(', ').join(filter(None, marks))}"


def _bounds(name: str, first: int | None, last: int | None, language: str) -> str:
    if first is None:
        return ""
    if first == last:
        return translate(name + " {place}", language, place=first)
    return translate(name + "s {place}", language, place=f"{first}-{last}")


def _ends(text: str) -> list[str]:
    """The text on one line, or its beginning and its end on two."""
    line = " ".join(text.split())
    first = _clip(line)
    if len(first) == len(line):
        return [line] if line else []
    return [first + " ...", "... " + _clip(line[::-1])[::-1]]


def _clip(line: str) -> str:
    """The beginning of a line that fits into _EDGE columns; wide East Asian characters take two."""
    columns = 0
    for place, char in enumerate(line):
        columns += 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if columns > _EDGE:
            return line[:place]
    return line


def _describe_image(link: MediaLink, language: str) -> str:
    place = f"{_bounds('page', link.page, link.page, language)}: " if link.page else ""
    kept = (
        translate(
            "{mime} {width}x{height}, {size} bytes",
            language,
            mime=link.mime,
            width=link.width,
            height=link.height,
            size=f"{link.size:,}",
        )
        + f", asset://{link.asset_id[:12]}..."
        if link.asset_id
        else translate_filled(link.reason, language)
    )
    return f"{place}{link.origin_ref[:80]}: {kept}"
