from __future__ import annotations

import hashlib
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rag_platform.chunkers.chunks import chunk_name, cut
from rag_platform.chunkers.recursive import Recursive
from rag_platform.config.folders import config_dir
from rag_platform.config.profiles import stage_profiles
from rag_platform.config.settings import Strategy
from rag_platform.documents import provenance
from rag_platform.documents.provenance import verify_version
from rag_platform.errors import DocumentError
from rag_platform.ir import Block, Chunk, Edit, MediaLink, Version
from rag_platform.loaders.markdown import MarkdownLoader
from rag_platform.loaders.text import TextLoader
from rag_platform.normalisation.edits import normalise
from rag_platform.sectioners.sections import MarkdownHeadings, headings_of
from rag_platform.storage.store import Store, write_json, write_records, write_text
from rag_platform_tests.conftest import TINY, Shelf

PROFILES = {"facts": "f", "sections": "s"}
RAW = "\ufeff# 标题\r\n\r\n段落 one  \r\n\r\n![x](a.png)\r\n\r\n## Two\r\n\r\nend".encode()


def stored(
    store: Store, strategy: Strategy, raw: bytes, name: str = "d.md"
) -> tuple[Version, list[Chunk]]:
    """The version of these bytes, cut, with everything that the proof reads written."""
    sha = hashlib.sha256(raw).hexdigest()
    version = Version(
        f"default.d@{sha[:12]}",
        "default",
        "d",
        "files/" + name,
        name,
        sha,
        len(raw),
        "text/markdown",
        "markdown",
        "tiny",
    )
    path = store.raw_path(sha)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    facts = (MarkdownLoader() if name.endswith(".md") else TextLoader()).load(path, name)
    links = [
        MediaLink(
            m.ref_id,
            hashlib.sha256(m.origin_ref.encode()).hexdigest(),
            m.origin_ref,
            start=m.start,
            end=m.end,
        )
        for m in facts.media
    ]
    folder = store.facts_dir(version, "f")
    write_text(folder / "facts.md", facts.text)
    write_records(folder / "blocks.parquet", Block, facts.blocks)
    write_json(folder / "summary.json", facts.summary)
    norm = normalise(facts, links, strategy.cleaning)
    write_records(store.version_path(version, "edits", "s"), Edit, norm.edits)
    sections = MarkdownHeadings(min_section_chars=0).sections(
        norm.text, headings_of(facts, norm), version.doc_id
    )
    return version, cut(version, facts, norm, sections, Recursive(), strategy, links)


def reasons(store: Store, version: Version, chunks: list[Chunk]) -> list[str]:
    return [
        failure.reason.split(":")[0] for failure in verify_version(store, version, PROFILES, chunks)
    ]


def test_every_chunk_is_proved(store: Store, tiny: Strategy) -> None:
    version, chunks = stored(store, tiny, RAW)
    assert len(chunks) == 2
    assert verify_version(store, version, PROFILES, chunks) == []


def test_a_changed_chunk_is_named(store: Store, tiny: Strategy) -> None:
    version, (first, second) = stored(store, tiny, RAW)
    failures = verify_version(
        store, version, PROFILES, [replace(first, chunk_text=first.chunk_text + "!"), second]
    )
    assert [(f.chunk_id, f.version_id, f.source_uri, f.reason.split(":")[0]) for f in failures] == [
        (first.chunk_id, version.version_id, "files/d.md", "chunk_text")
    ]
    assert reasons(store, version, [replace(first, fact_end=first.fact_end - 1)]) == ["fact_span"]
    assert reasons(store, version, [replace(second, byte_start=(second.byte_start or 0) + 1)]) == [
        "chunk_bytes"
    ]
    assert reasons(store, version, [replace(second, byte_start=None)]) == ["chunk_bytes"]


def test_what_a_citation_shows_is_computed_anew(store: Store, tiny: Strategy) -> None:
    version, (first, second) = stored(store, tiny, RAW)
    assert reasons(
        store, version, [first, replace(second, line_start=8), replace(second, line_end=12)]
    ) == ["chunk_lines", "chunk_lines"]
    assert reasons(store, version, [replace(second, page_start=1)]) == ["chunk_place"]
    assert reasons(store, version, [replace(second, locator="body/p[1]")]) == ["chunk_place"]
    assert reasons(
        store, version, [replace(second, doc_id="e"), replace(second, version_id="v")]
    ) == ["chunk_owner", "chunk_owner"]
    assert [
        f.reason.split(":")[0]
        for f in verify_version(store, version, PROFILES, [first], strategy=tiny)
    ] == ["chunk_section"]  # none is stored


def test_a_log_of_one_line_is_proved_with_one_hash_a_chunk(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids count how often a text occurred before, in a large log thousands of times."""
    path = tmp_path / "log.txt"
    path.write_text("the pump answers, all is well\n" * 600, encoding="utf-8")
    shelf.ingest(path)
    library, strategy = shelf.library(), shelf.workspace().strategy
    (version,) = shelf.ledger.versions("default")
    with library.lease("default") as lease:
        chunks = lease.release.catalog.chunks_of_version(version.version_id)
    library.close()
    assert len({chunk.chunk_text for chunk in chunks}) < 4 and len(chunks) > 20
    made: list[str] = []

    def count(*parts: Any) -> str:
        made.append(chunk_name(*parts))
        return made[-1]

    monkeypatch.setattr(provenance, "chunk_name", count)
    profiles = stage_profiles(strategy)
    assert verify_version(shelf.store, version, profiles, chunks, strategy=strategy) == []
    assert len(made) == len(chunks)
    given = [*chunks[:-1], replace(chunks[-1], chunk_id="chk_0")]
    [failure] = verify_version(shelf.store, version, profiles, given, strategy=strategy)
    assert failure.reason.startswith("chunk_id: ")


def test_the_path_of_a_chunk_names_the_headings_above_it(shelf: Shelf, tmp_path: Path) -> None:
    deep = "\n\n".join(f"Gate {n} opens for trucks and for nothing else." for n in range(60))
    path = tmp_path / "gates.md"
    path.write_text(f"# Gates\n\n## South\n\n### Docks\n\n{deep}\n", encoding="utf-8")
    shelf.ingest(path)
    library = shelf.library()
    (version,) = shelf.ledger.versions("default")
    with library.lease("default") as lease:
        found = lease.release.catalog.chunks_of_version(version.version_id)
    found.sort(key=lambda chunk: chunk.chunk_index)
    _, first, *others = found
    library.close()
    assert first.section_path == "Gates / South"
    assert {chunk.section_path for chunk in others} == {"Gates / South / Docks"} and others
    strategy = shelf.workspace().strategy
    for claimed, expected in (
        ("Gates / South / Docks", []),
        ("Gates / South", ["chunk_section"]),
        ("Gates / South / Doors", ["chunk_section"]),
    ):
        failures = verify_version(
            shelf.store,
            version,
            stage_profiles(strategy),
            [*found[:2], replace(others[0], section_path=claimed), *others[1:]],
            strategy=strategy,
            alone=[],
        )
        assert [failure.reason.split(":")[0] for failure in failures] == expected


def test_a_chunk_below_a_heading_that_was_joined_to_its_sibling_is_proved(
    shelf: Shelf, tmp_path: Path
) -> None:
    south = "The south gate opens for trucks. " * 20
    north = f"- {'Boats' * 12} moor here.\n- {'Barges' * 12} as well."  # in all below 200
    path = tmp_path / "gates.md"
    path.write_text(f"# Gates\n\n## South\n\n{south}\n\n## North\n\n{north}\n", encoding="utf-8")
    joining = TINY.replace("min_section_chars: 0", "min_section_chars: 200")
    joining = joining.replace("chunk_size: 400", "chunk_size: 100")
    (config_dir() / "strategies" / "joining.yaml").write_text(joining, encoding="utf-8")
    shelf.ingest(path, strategy="joining")  # its release passes the checks
    (version,) = shelf.ledger.versions("default")
    library = shelf.library()
    with library.lease("default") as lease:
        found = lease.release.catalog.chunks_of_version(version.version_id)
    library.close()
    last = max(found, key=lambda chunk: chunk.chunk_index)
    south_id = {chunk.section_id for chunk in found if chunk.section_path == "Gates / South"}
    assert (last.section_path, {last.section_id}) == ("Gates / North", south_id)
    strategy = shelf.workspace("joining").strategy
    profiles = stage_profiles(strategy)
    # with the strategy that cut the chunks, with another one, and without any
    for given in (strategy, shelf.workspace("tiny").strategy, None):
        for alone in (None, []):
            assert not verify_version(
                shelf.store, version, profiles, found, strategy=given, alone=alone
            )
    wrong = [replace(last, section_path="Gates / West")]
    (failure,) = verify_version(shelf.store, version, profiles, wrong, strategy=strategy)
    assert failure.reason.startswith("chunk_section: section_path is 'Gates / West'")
    made_up = [replace(found[0], section_path="Gates / South / West")]  # no heading of the file
    (failure,) = verify_version(shelf.store, version, profiles, made_up)
    assert failure.reason.startswith("chunk_section: section_path is 'Gates / South / West'")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be", "utf-32", "gb18030"])
def test_lines_are_counted_in_the_bytes(encoding: str, store: Store, tiny: Strategy) -> None:
    text = "\ufeff" * (encoding == "utf-16-be") + "第一行\r\n\r\n第二段 one\rtwo\n\nend of it\n"
    version, chunks = stored(store, tiny, text.encode(encoding), "d.txt")
    (chunk,) = chunks
    assert (chunk.line_start, chunk.line_end) == (1, 6) and reasons(store, version, chunks) == []
    assert reasons(store, version, [replace(chunk, line_end=5)]) == ["chunk_lines"]


def test_changed_bytes_and_facts_fail_every_chunk(store: Store, tiny: Strategy) -> None:
    version, chunks = stored(store, tiny, RAW)
    facts = store.facts_dir(version, "f") / "facts.md"
    kept = facts.read_bytes()
    for other in (b"other", b"no UTF-8: \xff"):
        facts.write_bytes(other)
        assert reasons(store, version, chunks) == ["facts_changed", "facts_changed"]
    facts.write_bytes(kept)
    store.raw_path(version.file_sha256).write_bytes(RAW + b"x")
    assert reasons(store, version, chunks) == ["raw_changed", "raw_changed"]
    store.raw_path(version.file_sha256).unlink()
    assert reasons(store, version, chunks) == ["raw_missing", "raw_missing"]


def test_missing_stages_are_named(store: Store, tiny: Strategy) -> None:
    version, chunks = stored(store, tiny, RAW)
    assert verify_version(store, version, {"facts": "f", "sections": "other"}, chunks)[
        0
    ].reason.startswith("edits_missing")
    assert verify_version(store, version, {"facts": "other", "sections": "s"}, chunks)[
        0
    ].reason.startswith("facts_missing")


def test_blocks_that_point_elsewhere_are_found(store: Store, tiny: Strategy) -> None:
    version, chunks = stored(store, tiny, b"# A\n\nwords here\n")
    path = store.facts_dir(version, "f") / "blocks.parquet"
    write_records(
        path,
        Block,
        [Block(0, "heading", 0, 3, 1, 0, 3, 1, 1), Block(1, "paragraph", 5, 15, 0, 4, 14, 3, 3)],
    )
    assert reasons(store, version, chunks) == ["block_bytes"]


def ends_inside(chunks: list[Chunk], text: str) -> list[str]:
    """Chunks that end inside a table row, or inside a fence that would have fitted; fences are
    found here by their own rule.
    """
    found = []
    lines = text.split("\n")
    fence_start, mark, place = -1, "", 0
    fences = []
    for line in lines:
        body = line.lstrip(" >")
        if not mark and body.startswith(("```", "~~~")) and "`" not in body.lstrip("`"):
            fence_start, mark = place, body[: len(body) - len(body.lstrip(body[0]))]
        elif mark and body.startswith(mark) and not body.strip(mark[0] + " "):
            fences.append((fence_start, place + len(line)))
            mark = ""
        place += len(line) + 1
    for chunk in chunks:
        end = chunk.norm_end
        if any(start < end < stop and stop - start <= 700 for start, stop in fences):
            found.append(chunk.chunk_text[-80:])
        line = text[text.rfind("\n", 0, end) + 1 : (text + "\n").find("\n", end)]
        if (
            line.startswith("|")
            and line.rstrip().endswith("|")
            and text[end : end + 1] not in ("\n", "")
        ):
            found.append(line)
    return found


@pytest.mark.parametrize("archive", ["fastapi-en-zh/r3.tar.gz", "wsl-docs/r2.tar.gz"])
def test_real_documents_are_proved(
    archive: str, material: Path, tmp_path: Path, store: Store, tiny: Strategy
) -> None:
    with tarfile.open(material / "markdown" / archive) as packed:
        packed.extractall(tmp_path / "docs", filter="data")
    files = sorted((tmp_path / "docs").rglob("*.md"))[::15]
    assert files
    for path in files:
        version, chunks = stored(store, tiny, path.read_bytes())
        assert chunks and verify_version(store, version, PROFILES, chunks) == []
        facts = MarkdownLoader().load(path, path.name)
        links = [
            MediaLink(
                m.ref_id,
                hashlib.sha256(m.origin_ref.encode()).hexdigest(),
                m.origin_ref,
                start=m.start,
                end=m.end,
            )
            for m in facts.media
        ]
        assert ends_inside(chunks, normalise(facts, links, tiny.cleaning).text) == []


@pytest.mark.parametrize(
    "folder",
    [
        "faults/encoding",
        "faults/newlines",
        "faults/frontmatter",
        "faults/structure",
        "faults/links",
        "markdown-odd",
    ],
)
def test_odd_documents_are_proved_or_refused_with_a_reason(
    folder: str, material: Path, store: Store, tiny: Strategy
) -> None:
    for path in sorted((material / folder).glob("*.md")):
        for name in ("d.md", "d.txt"):
            try:
                version, chunks = stored(store, tiny, path.read_bytes(), name)
            except DocumentError as error:
                assert error.code in ("empty_file", "binary_content")
                continue
            assert chunks, path.name
            assert verify_version(store, version, PROFILES, chunks) == [], path.name
            assert len({chunk.chunk_id for chunk in chunks}) == len(chunks)
            assert all("\x00" not in chunk.chunk_text for chunk in chunks)
