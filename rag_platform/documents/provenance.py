"""Proves that quotes are in the file: chunk, edits, facts and raw bytes are compared again, each
once per version.

Everything that a citation shows of a chunk is recomputed and compared: text, pages, lines, bytes,
locator, section and ids.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from rag_platform.chunkers.chunks import chunk_name
from rag_platform.chunkers.source_locations import Places, block_range
from rag_platform.config.profiles import stage_profiles
from rag_platform.config.settings import Limits, Strategy
from rag_platform.documents.outputs import Outputs
from rag_platform.errors import DocumentError
from rag_platform.intake import second_readers
from rag_platform.intake.isolation import reread_in_child, verify_in_child
from rag_platform.intake.loading import charset_option
from rag_platform.ir import (
    JOINT,
    PREAMBLE,
    Block,
    Chunk,
    Facts,
    MediaRef,
    ParseSummary,
    Section,
    VerifyFailure,
    Version,
)
from rag_platform.loaders.decoding import decode_span
from rag_platform.normalisation.edits import Normalised, apply_edits, fingerprint_text, normalise
from rag_platform.registry import PROVIDERS, make_provider, provider_class, traits_of
from rag_platform.sectioners.sections import (
    Heading,
    extend_path,
    find_path_marks,
    headings_of,
    join_sections,
    section_id,
)
from rag_platform.storage.records import REINGEST_REMEDY
from rag_platform.storage.store import Store, read_record, read_records, sha256_file

# repetitions of one text in a section that are tried when only some of the chunks are verified
_REPEATS = 1000
# codes of reasons that do not tell what was read wrong: stored outputs are missing, damaged or of
# another program, or the file could not be read again
UNREADABLE = frozenset(
    "raw_missing raw_changed facts_missing facts_changed edits_missing edits_changed"
    " sections_changed unread".split()
)


def verify_version(
    store: Store,
    version: Version,
    profiles: Mapping[str, str],
    chunks: Sequence[Chunk],
    limits: Limits | None = None,
    strategy: Strategy | None = None,
    alone: list[str] | None = None,
) -> list[VerifyFailure]:
    """The chunks whose text could not be proved to be in the stored file, each with the first
    reason; empty when all are proved.

    A manually edited chunk is not a quote; instead, the chunks that it was edited from are proved.
    `profiles` maps stage to profile. Reasons start with a code: one of UNREADABLE, chunk_text,
    fact_span, block_bytes, block_lines, chunk_bytes, chunk_lines, chunk_place, chunk_owner,
    chunk_section, chunk_id, block_boxes, block_locator, second_reader, no_block, uncovered,
    origin_missing, origin_span, block_order, chunk_order, section_gap.

    Formats without byte ranges are read again by their loader, in a child process under `limits`
    if the loader is sandboxed. Chunk ids are checked if the `strategy` that made them is given.

    A list `alone` requests the deepest proof. Then edits and sections are recomputed if this
    program's profiles still equal the stored ones. Blocks and the version's own chunks must be in
    file order without gaps; otherwise the whole version fails, because a text that occurs twice
    could be cited in the wrong place. Formats without byte ranges are also read by an independent
    second reader, and its words compared in order; what that one cannot read is appended to the
    list.
    """
    edited = [chunk for chunk in chunks if chunk.edited_from]
    outputs = Outputs(version, store, profiles)
    try:
        found = _read(outputs, strategy, recompute=alone is not None)
        if alone is not None:
            _require_order(found, outputs)
        origins = _origins(outputs, edited)
        quotes = [*(chunk for chunk in chunks if not chunk.edited_from), *origins.values()]
        touched = _touched_blocks(found, quotes)
        bad_blocks = _find_bad_blocks(found, version.loader, touched, limits or Limits())
    except _UnprovedError as error:
        return [_failure(version, chunk, str(error)) for chunk in chunks]
    if alone is not None:
        bad_blocks = _reread(found, version, touched, limits or Limits(), alone) | bad_blocks
    identity = _IdentityCheck(version, strategy, max(len(chunks), _REPEATS))
    reasons: dict[str, str] = {}
    for chunk in chunks:
        problem = (
            _origin_problem(found, chunk, origins, bad_blocks)
            if chunk.edited_from
            else _problem(found, chunk, bad_blocks)
        )
        if problem := problem or identity.problem(found, chunk):
            reasons.setdefault(chunk.chunk_id, problem)
    return [_failure(version, c, reasons[c.chunk_id]) for c in chunks if c.chunk_id in reasons]


def _failure(version: Version, chunk: Chunk, reason: str) -> VerifyFailure:
    return VerifyFailure(chunk.chunk_id, version.version_id, version.source_uri, reason)


def count_edited(chunks: Sequence[Chunk]) -> int:
    """The number of manually edited chunks."""
    return sum(bool(chunk.edited_from) for chunk in chunks)


@dataclass(frozen=True, slots=True)
class _Stored:
    """All stored outputs that the proof needs."""

    raw_path: Path
    raw: bytes | None  # only for formats with byte ranges
    raw_lines: Sequence[int]  # only for formats with byte ranges: the offset of each line's start
    facts: Facts
    normalised: Normalised
    places: Places
    sections: Mapping[str, Section]  # by section_id
    path_marks: Sequence[Heading]
    current: bool  # the chunks are as this program makes them, with locators on pages and lines

    def blocks_of(self, chunk: Chunk) -> Sequence[Block]:
        """The blocks that overlap a chunk."""
        blocks = self.facts.blocks
        return blocks[
            slice(*block_range(blocks, self.places.starts, chunk.fact_start, chunk.fact_end))
        ]


class _UnprovedError(Exception):
    """The reason why no chunk of the version can be proved."""


def _read(outputs: Outputs, strategy: Strategy | None, *, recompute: bool) -> _Stored:
    """Read the stored outputs. Raises _UnprovedError if one is missing or changed."""
    version, profiles, folder = outputs.version, outputs.profiles, outputs.facts_folder
    raw_path = outputs.store.raw_path(version.file_sha256)
    if not raw_path.is_file():
        raise _UnprovedError("raw_missing: the stored bytes are gone; ingest the file again")
    names = ("summary.json", "facts.md", "blocks.parquet")
    if not all((folder / name).is_file() for name in names):
        raise _UnprovedError(
            f"facts_missing: no facts with profile {profiles['facts']}; {REINGEST_REMEDY}"
        )
    if not outputs.path("edits").is_file():
        raise _UnprovedError(
            f"edits_missing: no edits with profile {profiles['sections']}; {REINGEST_REMEDY}"
        )
    summary = read_record(outputs.summary_path, ParseSummary)
    data = (folder / "facts.md").read_bytes()
    if (found := hashlib.sha256(data).hexdigest()) != summary.md_sha256:
        raise _UnprovedError(
            f"facts_changed: facts.md has hash {found[:12]}, recorded {summary.md_sha256[:12]};"
            f" {REINGEST_REMEDY}"
        )
    text = data.decode("utf-8")
    blocks = read_records(folder / "blocks.parquet", Block)
    raw = raw_path.read_bytes() if any(block.byte_start is not None for block in blocks) else None
    found = hashlib.sha256(raw).hexdigest() if raw is not None else sha256_file(raw_path)
    if found != version.file_sha256:
        raise _UnprovedError(
            f"raw_changed: the stored bytes have hash {found[:12]}, recorded"
            f" {version.file_sha256[:12]}; remove {raw_path}, then ingest the file again"
        )
    media = folder / "media.parquet"
    refs = read_records(media, MediaRef) if recompute and media.is_file() else ()
    facts = Facts(text, tuple(blocks), tuple(refs), summary)
    normalised = apply_edits(text, outputs.edits)
    sections = _sections(outputs, strategy if recompute else None, facts, normalised)
    lines = _raw_lines(raw, summary.encoding) if raw is not None else []
    return _Stored(
        raw_path,
        raw,
        lines,
        facts,
        normalised,
        Places(facts, normalised),
        {s.section_id: s for s in join_sections(sections)},
        find_path_marks(facts, normalised),
        strategy is not None and stage_profiles(strategy)["chunks"] == profiles.get("chunks"),
    )


def _sections(
    outputs: Outputs, strategy: Strategy | None, facts: Facts, normalised: Normalised
) -> Sequence[Section]:
    """The version's sections, recomputed if this program's profile equals the stored one. Raises
    _UnprovedError if the stored edits or sections differ.
    """
    stored = outputs.sections if outputs.path("sections").is_file() else None
    if strategy is None or stage_profiles(strategy)["sections"] != outputs.profiles["sections"]:
        return stored or ()
    links = outputs.links if outputs.path("media").is_file() else ()
    again = normalise(facts, links, strategy.cleaning)
    if again.edits != normalised.edits:
        edit = next((edit for edit in {*normalised.edits} ^ {*again.edits}), None)
        raise _UnprovedError(
            f"edits_changed: cleaning the facts again makes other edits, e.g. {edit};"
            f" {REINGEST_REMEDY}"
        )
    sectioner = make_provider("sectioner", strategy.sectioner.provider, strategy.sectioner.options)
    sections: list[Section] = list(
        sectioner.sections(normalised.text, headings_of(facts, normalised), outputs.version.doc_id)
    )
    if stored is not None and stored != sections:
        other = next((section for section in {*stored} ^ {*sections}), None)
        raise _UnprovedError(
            f"sections_changed: the headings make other sections, e.g. {other}; {REINGEST_REMEDY}"
        )
    return sections


def _require_order(found: _Stored, outputs: Outputs) -> None:
    """Raise _UnprovedError if blocks or chunks are not in the order of their texts, two blocks have
    the same locator, or a word of a section is in no chunk.
    """
    end, places = 0, set[str]()
    for block in found.facts.blocks:
        if block.byte_start is not None and block.byte_end is not None:
            if block.byte_start < end:
                raise _UnprovedError(
                    f"block_order: block {block.ordinal} begins at byte {block.byte_start}, the one"
                    f" before it ends at {end}"
                )
            end = block.byte_end
        elif block.page is None and block.locator:
            if block.locator in places:
                raise _UnprovedError(f"block_order: two blocks stand at {block.locator}")
            places.add(block.locator)
    is_cut = outputs.path("chunks").is_file()
    chunks = [
        chunk
        for chunk in (outputs.chunks if is_cut else ())
        if chunk.chunk_text and chunk.chunk_type != "parent"
    ]
    for before, chunk in pairwise(chunks):
        if before.chunk_index >= chunk.chunk_index or before.norm_start > chunk.norm_start:
            raise _UnprovedError(
                f"chunk_order: chunk {chunk.chunk_index} begins at character {chunk.norm_start},"
                f" chunk {before.chunk_index} at {before.norm_start}"
            )
    spans = [(chunk.norm_start, chunk.norm_end) for chunk in chunks]
    for section in found.sections.values() if is_cut else ():
        start, end = section.norm_start, section.norm_end
        near = spans[max(0, bisect_right(spans, (start, start)) - 1) :]
        if gap := _first_gap(found.normalised.text, start, end, near, words=True):
            raise _UnprovedError(
                f"section_gap: {gap[:60]!r} of section {section.section_path!r} stands in no chunk;"
                f" {REINGEST_REMEDY}"
            )


def _first_gap(
    text: str, start: int, end: int, spans: Iterable[tuple[int, int]], *, words: bool = False
) -> str:
    """The first text in [start, end) outside the sorted spans, with `words` the first one that has
    a letter or digit; "" if there is none.
    """
    at = start
    for begin, stop in [*spans, (end, end)]:
        gap = text[at : max(at, min(begin, end))].strip()
        if gap and (not words or any(map(str.isalnum, gap))):
            return gap
        at = max(at, stop)
        if at >= end:
            break
    return ""


def _raw_lines(raw: bytes, encoding: str) -> list[int]:
    """The byte offset of each line's start; lines end with LF, CR LF or CR."""
    if not encoding.startswith(("utf-16", "utf-32")):
        return [0, *(match.end() for match in re.finditer(rb"\r\n|\n|\r", raw))]
    width = 2 if encoding.startswith("utf-16") else 4
    units = array("H" if width == 2 else "I", raw[: len(raw) // width * width])
    if encoding.endswith("be"):
        units.byteswap()
    ends = (
        i + 1
        for i, unit in enumerate(units)
        if unit == 10 or (unit == 13 and units[i + 1 : i + 2] != array(units.typecode, [10]))
    )
    return [0, *(end * width for end in ends)]


def _touched_blocks(found: _Stored, chunks: Sequence[Chunk]) -> list[Block]:
    """The blocks that overlap any of the chunks, in order."""
    touched = {block.ordinal: block for chunk in chunks for block in found.blocks_of(chunk)}
    return [touched[number] for number in sorted(touched)]


def _find_bad_blocks(
    found: _Stored, loader_name: str, touched: Sequence[Block], limits: Limits
) -> dict[int, str]:
    """Block ordinal to the reason why the file does not contain the block's text."""
    bad: dict[int, str] = {}
    for block in touched:
        if block.byte_start is None or block.byte_end is None:
            continue
        span = f"bytes {block.byte_start}-{block.byte_end}"
        lines = _lines_of(found, block.byte_start, block.byte_end)
        facts = found.facts.text[block.start : block.end]
        if _decode(found, block.byte_start, block.byte_end) != facts:
            bad[block.ordinal] = (
                f"block_bytes: {span} do not read as the facts of block {block.ordinal}"
            )
        elif lines != (block.line_start, block.line_end):
            bad[block.ordinal] = (
                f"block_lines: {span} are lines {lines[0]}-{lines[1]}, not"
                f" {block.line_start}-{block.line_end}"
            )
    paged, placed = _without_bytes(found, touched)
    for code, group in (("block_boxes", paged), ("block_locator", placed)):
        if group:
            reasons = _replay(found, _loader_of(found, loader_name), group, limits)
            bad.update({number: f"{code}: {reason}" for number, reason in reasons.items()})
    return bad


def _without_bytes(found: _Stored, touched: Sequence[Block]) -> tuple[list[Block], list[Block]]:
    """Of touched blocks without byte range: (all blocks of their pages, those without a page)."""
    pages = {block.page for block in touched if block.page is not None and block.byte_start is None}
    # all blocks of a page, because a character may belong to a neighbour of the touched block
    paged = [block for block in found.facts.blocks if block.page in pages]
    return paged, [block for block in touched if block.page is None and block.byte_start is None]


def _loader_of(found: _Stored, loader_name: str) -> str:
    own = found.facts.summary.loader_name
    return own if own in PROVIDERS["loader"] else loader_name


def _reread(
    found: _Stored, version: Version, touched: Sequence[Block], limits: Limits, alone: list[str]
) -> dict[int, str]:
    """Ordinal to reason of the blocks that a second reader reads differently."""
    paged, placed = _without_bytes(found, touched)
    if not (blocks := [*paged, *placed]):
        return {}
    loader = _loader_of(found, version.loader)
    if reason := second_readers.why_missing(loader):
        alone.append(f"{version.source_uri}: proved by one reader only: {reason}")
        return {}
    differing, unread = reread_in_child(found.raw_path, loader, found.facts.text, blocks, limits)
    if lost := [block.ordinal for block in touched if block.ordinal in unread]:
        count = f"{len(lost)} of {len(touched)} blocks"
        alone.append(f"{version.source_uri}: {count} proved by one reader only: {unread[lost[0]]}")
    return {number: f"second_reader: {reason}" for number, reason in differing.items()}


def _replay(
    found: _Stored, loader_name: str, blocks: Sequence[Block], limits: Limits
) -> dict[int, str]:
    """Have the loader verify blocks without byte ranges: ordinal to reason of those that fail."""
    cls = provider_class("loader", loader_name)
    if not hasattr(cls, "verify_blocks"):
        return {
            block.ordinal: f"loader {loader_name!r} cannot read the place of a block again"
            for block in blocks
        }
    options = charset_option(loader_name, found.facts.summary.encoding)
    try:
        if traits_of(cls).isolated or traits_of(cls).engine:
            return verify_in_child(
                found.raw_path, loader_name, options, found.facts.text, blocks, limits
            )
        return dict(
            make_provider("loader", loader_name, options).verify_blocks(
                found.raw_path, found.facts.text, blocks
            )
        )
    except DocumentError as error:
        raise _UnprovedError(
            f"unread: the file cannot be read again ({error.code}: {error.message})"
        ) from error


def _decode(found: _Stored, start: int, end: int) -> str | None:
    if found.raw is None:
        return None
    try:
        summary = found.facts.summary
        errors = "replace" if summary.lossy else "strict"
        return decode_span(found.raw, start, end, summary.encoding, errors)
    except UnicodeDecodeError:
        return None


def _lines_of(found: _Stored, start: int, end: int) -> tuple[int, int]:
    """The numbers of the first and last line of a byte range, counted in the raw bytes."""
    return bisect_right(found.raw_lines, start), bisect_right(found.raw_lines, max(start, end - 1))


def _origins(outputs: Outputs, edited: Sequence[Chunk]) -> dict[str, Chunk]:
    """The version's own chunks that the edited ones were edited from, by id."""
    wanted = {chunk_id for chunk in edited for chunk_id in chunk.edited_from}
    own = outputs.chunks if wanted and outputs.path("chunks").is_file() else ()
    return {chunk.chunk_id: chunk for chunk in own if chunk.chunk_id in wanted}


def _origin_problem(
    found: _Stored, chunk: Chunk, origins: Mapping[str, Chunk], bad_blocks: Mapping[int, str]
) -> str:
    """Why the origins of an edited chunk are not proved, or an empty string."""
    known = [origins[chunk_id] for chunk_id in chunk.edited_from if chunk_id in origins]
    if len(known) < len(chunk.edited_from):
        lost = next(chunk_id for chunk_id in chunk.edited_from if chunk_id not in origins)
        return (
            f"origin_missing: chunk {lost}, which it was edited from, is none of the version's own;"
            f" {REINGEST_REMEDY}"
        )
    for origin in known:
        if reason := _problem(found, origin, bad_blocks):
            return f"{reason} (of {origin.chunk_id}, which it was edited from)"
    start = min(origin.norm_start for origin in known)
    end = max(origin.norm_end for origin in known)
    if not start <= chunk.norm_start <= chunk.norm_end <= end:
        return (
            f"origin_span: it claims characters {chunk.norm_start}-{chunk.norm_end}, what it was"
            f" edited from are {start}-{end}"
        )
    return _span_problem(found, chunk) or _place_problem(found, chunk)


def _problem(found: _Stored, chunk: Chunk, bad_blocks: Mapping[int, str]) -> str:
    """Why the chunk is not proved, or an empty string."""
    if not chunk.chunk_text:  # an image: its bytes are proved by their own hash
        return ""
    if found.normalised.text[chunk.norm_start : chunk.norm_end] != chunk.chunk_text:
        return (
            f"chunk_text: characters {chunk.norm_start}-{chunk.norm_end} of the normalised text are"
            " not the chunk's text"
        )
    return (
        _span_problem(found, chunk)
        or _block_problem(found, chunk, bad_blocks)
        or (_byte_problem(found, chunk) if found.raw is not None else "")
        or _place_problem(found, chunk)
    )


def _block_problem(found: _Stored, chunk: Chunk, bad_blocks: Mapping[int, str]) -> str:
    """Why the blocks do not contain the chunk's text, or an empty string."""
    span = f"facts {chunk.fact_start}-{chunk.fact_end}"
    blocks = found.blocks_of(chunk)
    if not blocks:
        return f"no_block: no block covers {span}"
    for block in blocks:
        if block.ordinal in bad_blocks:
            return bad_blocks[block.ordinal]
    covered = [(block.start, block.end) for block in blocks]
    gap = _first_gap(found.facts.text, chunk.fact_start, chunk.fact_end, covered)
    return f"uncovered: no block holds {gap[:60]!r} of {span}" if gap else ""


def _byte_problem(found: _Stored, chunk: Chunk) -> str:
    """Why the chunk's bytes and lines do not match its facts, or an empty string."""
    first, last = chunk.byte_start, chunk.byte_end
    if first is None or last is None:
        return "chunk_bytes: the chunk has no byte range"
    if _decode(found, first, last) != found.facts.text[chunk.fact_start : chunk.fact_end]:
        return f"chunk_bytes: bytes {first}-{last} do not read as the chunk's facts"
    if (lines := _lines_of(found, first, last)) != (chunk.line_start, chunk.line_end):
        return (
            f"chunk_lines: the bytes are lines {lines[0]}-{lines[1]}, the chunk says"
            f" {chunk.line_start}-{chunk.line_end}"
        )
    return ""


def _span_problem(found: _Stored, chunk: Chunk) -> str:
    """Why the edits map the chunk to other facts than it claims, or an empty string."""
    if found.normalised.span_to_facts(chunk.norm_start, chunk.norm_end) != (
        chunk.fact_start,
        chunk.fact_end,
    ):
        return (
            "fact_span: the edits do not map the chunk to facts"
            f" {chunk.fact_start}-{chunk.fact_end}"
        )
    return ""


def _place_problem(found: _Stored, chunk: Chunk) -> str:
    """Why the blocks put the chunk elsewhere in the file than it claims, or an empty string."""
    places = found.places.of(chunk.fact_start, chunk.fact_end, chunk.norm_start)
    for name, value in places.items():
        claimed = getattr(chunk, name)
        older = name == "locator" and not claimed and not found.current
        if claimed != value and not older:
            return f"chunk_place: {name} is {claimed!r}, the blocks it stands in say {value!r}"
    return ""


@dataclass(frozen=True, slots=True)
class _IdentityCheck:
    """Checks a chunk's document, version, section and id."""

    version: Version
    strategy: Strategy | None
    chunks: int  # the most times that a text may occur in a section
    # the ids of a text's first occurrences, as many as were asked for: a log has thousands
    ids: dict[tuple[str, str, str], set[str]] = field(default_factory=dict)

    def problem(self, found: _Stored, chunk: Chunk) -> str:
        """Why the chunk's ids or section are wrong, or ""."""
        for name in ("doc_id", "version_id"):
            if (claimed := getattr(chunk, name)) != (own := getattr(self.version, name)):
                return f"chunk_owner: {name} is {claimed!r}, the chunk is one of {own!r}"
        return self._section_problem(found, chunk) or self._id_problem(chunk)

    def _section_problem(self, found: _Stored, chunk: Chunk) -> str:
        section = found.sections.get(chunk.section_id)
        if not found.sections and self.strategy is None:  # nothing to check against
            return ""
        if section is None:
            # an image in a document without text
            if not chunk.chunk_text and chunk.section_id == section_id(chunk.doc_id, PREAMBLE, 0):
                section = Section(chunk.section_id, PREAMBLE, 0, 0, 0, 0)
            else:
                return f"chunk_section: the headings make no section {chunk.section_id}"
        whole = not self.version.edition and chunk.chunk_text
        path = section.section_path
        extended = extend_path(section, found.path_marks, chunk.norm_start)
        if (whole and found.current) or chunk.section_path == extended:
            path = extended
        elif chunk.section_path.startswith(path + JOINT):  # of a chunk before it was edited
            below = chunk.section_path.removeprefix(path + JOINT).split(JOINT)
            if {*below} <= {title for _, _, title in found.path_marks}:
                path = chunk.section_path
        for name in ("section_path", "title", "h1_title", "h2_title"):
            value = path if name == "section_path" else getattr(section, name)
            if (claimed := getattr(chunk, name)) != value:
                return f"chunk_section: {name} is {claimed!r}, the headings say {value!r}"
        if (
            whole
            and not section.norm_start <= chunk.norm_start <= chunk.norm_end <= section.norm_end
        ):
            return (
                f"chunk_section: characters {chunk.norm_start}-{chunk.norm_end} are not in section"
                f" {section.section_path!r}"
            )
        return ""

    def _id_problem(self, chunk: Chunk) -> str:
        if self.strategy is None or not chunk.chunk_text:  # ids of image chunks come from the image
            return ""
        mark = fingerprint_text(chunk.chunk_text, self.strategy.cleaning)
        if chunk.chunk_fingerprint != mark:
            return (
                f"chunk_id: the text has fingerprint {mark[:12]}, recorded"
                f" {chunk.chunk_fingerprint[:12]}"
            )
        section_id, chunk_type = chunk.section_id, chunk.chunk_type
        ids = self.ids.setdefault((section_id, mark, chunk_type), set())
        while chunk.chunk_id not in ids:
            if len(ids) > self.chunks:
                return (
                    f"chunk_id: section and text of the chunk make another id than {chunk.chunk_id}"
                )
            ids.add(chunk_name(section_id, mark, len(ids), chunk_type))
        return ""
