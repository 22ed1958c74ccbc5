"""Two hundred odd PDFs from their bytes to chunks: words found, hidden words kept out, pages right;
the exit code is 1 when one fails.

    python bench/odd_pdfs.py [--count 200] [--strategy default] [--profile layout|fast]

The files are written by rag_platform_tests/odd_pdfs.py, twenty of each kind. A word is found when
it stands in a block that names its page and in a chunk that covers the block. Every chunk is proved
with `verify_blocks` too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rag_platform.config.ingestion import LoadingConfig
from rag_platform.config.query import ProviderConfig
from rag_platform.config.settings import load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.documents.kept_text import chunk_spans, text_in_chunks
from rag_platform.documents.versions import VersionBuild, build_stage
from rag_platform.intake.isolation import verify_in_child
from rag_platform.ir import Version
from rag_platform.storage.store import Store
from rag_platform_tests.odd_pdfs import KINDS, odd_pdfs, problems

STAGES = ("raw_document", "facts", "media", "sections", "chunks")


def main() -> None:
    """Write and read the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--strategy", default="default")
    parser.add_argument(
        "--profile",
        choices=("layout", "fast"),
        default="layout",
        help="of the loader pdf; layout takes minutes",
    )
    options = parser.parse_args()
    settings = load_settings()
    loader = LoadingConfig(
        loaders=(ProviderConfig(provider="pdf", options={"profile": options.profile}),)
    )
    strategy = load_strategy(settings, options.strategy).model_copy(update={"loading": loader})
    files, pages, words, hidden, failed = (
        Counter[str](),
        Counter[str](),
        Counter[str](),
        Counter[str](),
        Counter[str](),
    )
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="rag-odd-") as folder:
        store = Store(Path(folder) / "home")
        for made in odd_pdfs(Path(folder), options.count):
            with open(made.path, "rb") as opened:
                sha256, size = store.spool(
                    opened, settings.limits.read_chunk_size_bytes, settings.limits.max_bytes
                )
            name, doc_id = made.path.name, made.path.stem
            version = Version(
                f"odd.{doc_id}@{sha256[:12]}",
                "odd",
                doc_id,
                name,
                name,
                sha256,
                size,
                "",
                "pdf",
                strategy.name,
            )
            work = VersionBuild(version, strategy, settings, store, made.path)
            for stage in STAGES:
                build_stage(stage, work)
            spans, said = chunk_spans(work.chunks), dict[int, str]()
            for block in work.facts.blocks:
                if text := text_in_chunks(block, work.normalised, spans).strip():
                    said[block.page or 0] = f"{said.get(block.page or 0, '')} {text}"
            wrong = problems(made, said, work.facts.summary.title)
            unproved = verify_in_child(
                made.path, "pdf", {}, work.facts.text, work.facts.blocks, settings.limits
            )
            wrong += [f"not proved: {reason}" for reason in unproved.values()]
            files[made.kind] += 1
            pages[made.kind] += len(made.words)
            words[made.kind] += sum(map(len, made.words.values()))
            hidden[made.kind] += len(made.hidden)
            failed[made.kind] += bool(wrong)
            if wrong:
                print(f"{name}: {'; '.join(wrong)[:300]}", flush=True)
    for kind in KINDS:
        print(
            f"{kind:15} {files[kind]:3} files {pages[kind]:4} pages {words[kind]:6} words"
            f" {hidden[kind]:4} hidden  {failed[kind]} failed"
        )
    print(
        f"{files.total()} files, {pages.total()} pages, {failed.total()} failed, profile"
        f" {options.profile}, {time.perf_counter() - started:.0f} s"
    )
    sys.exit(1 if failed.total() else 0)


if __name__ == "__main__":
    main()
