"""How good is what is found? Each retriever, every fusion and the query path as it ships, on
retrieval sets.

    python bench/quality.py [FOLDER | QUESTIONS:CORPUS ...] [--strategy fast ...] [--keep HOME]
    [--queries N] [--json FILE]

A folder holds a set in BEIR's layout, or PDF files with questions about their pages.
`QUESTIONS:CORPUS` asks the questions of one folder of the texts of another with the same ids, for
questions in another language. Without folders all sets of the test material are run. Texts become
Markdown files, which are received, cut, embedded and released by the program's own functions,
without Dagster; --keep takes a folder where libraries and embeddings are kept for the next run.

`dense` and `bm25` are the retrievers by themselves, 50 chunks each, the fusions what becomes of
just these candidates; `shipped` is the answer of the query path to the same question: the
strategy's fusion, its reranker, one hit a document. Values are means over the questions with 95 %
bootstrap intervals; the last column compares with the better retriever, question by question
(paired bootstrap).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rag_platform.answering.engine import answer
from rag_platform.config.settings import load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.errors import InputError
from rag_platform.evaluation.cases import Dataset
from rag_platform.evaluation.datasets.beir import is_page_set, is_retrieval_set
from rag_platform.evaluation.metrics import bootstrap, mean, measure_ranking
from rag_platform.evaluation.sources import open_dataset
from rag_platform.evaluation.strategies import publish_documents
from rag_platform.ir import Candidate, QueryRequest
from rag_platform.ledger.ledger import open_ledger
from rag_platform.observability import tracing
from rag_platform.processes.limits import Deadline
from rag_platform.query import analysis
from rag_platform.registry import make_provider
from rag_platform.retrieval import retrievers
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.retrievers import Access
from rag_platform.retrieval.search_context import SearchContext
from rag_platform.storage.store import Store
from rag_platform.text.language import language
from rag_platform.workspace import Workspace

REPOSITORY = Path(__file__).resolve().parent.parent
MATERIAL = Path(os.environ.get("RAG_TEST_DATA") or REPOSITORY.parent / "shared" / "data")
STRATEGIES = ("fast", "default", "duo")
MEASURES = {"nDCG@10": "ndcg@10", "MRR@10": "mrr@10", "HitRate@10": "hit_rate@10"}
Values = dict[str, float]  # question to the value of one measure
ALPHAS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
FUSIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "rrf": ("rrf", {}),
    **{f"mm {alpha}": ("min_max", {"alpha": alpha}) for alpha in ALPHAS},
    **{f"zs {alpha}": ("z_score", {"alpha": alpha}) for alpha in ALPHAS},
}
DEPTH = 10


@dataclass(frozen=True)
class Asked:
    """A set as it is asked: questions, and their grades by the stems of documents or by pages."""

    dataset: Dataset

    @property
    def name(self) -> str:
        """The name of the set."""
        return self.dataset.dataset_id

    @cached_property
    def questions(self) -> dict[str, str]:
        """The questions by id."""
        return {case.case_id: case.query for case in self.dataset.cases}

    @cached_property
    def qrels(self) -> dict[str, Mapping[str, int]]:
        """The grades of each question."""
        return {case.case_id: case.relevance_doc for case in self.dataset.cases}

    @cached_property
    def of_pages(self) -> bool:
        """True where pages are graded, not documents."""
        return any("#p" in name for grades in self.qrels.values() for name in grades)

    @property
    def language(self) -> str:
        """The language of most questions."""
        found = [language(case.query) for case in self.dataset.cases]
        return max(set(found), key=found.count)


def _first(dataset: Dataset, most: int | None) -> Dataset:
    return dataclasses.replace(dataset, cases=dataset.cases[:most])


def shipped_sets() -> list[str]:
    """All sets of the test material, questions of the other language asked of parallel texts
    included.
    """
    found = [
        str(path) for path in sorted((MATERIAL / "retrieval").glob("*")) if is_retrieval_set(path)
    ]
    pairs = [
        f"{one}:{other}"
        for one in found
        for other in found
        if one != other and Path(one).name.split("-")[0] == Path(other).name.split("-")[0]
    ]
    pages = [
        str(path) for path in sorted(MATERIAL.glob("*")) if path.is_dir() and is_page_set(path)
    ]
    return [*found, *pairs, *pages]


# --- asking -------------------------------------------------------------------------------------


def rankings(library: Library, namespace: str, asked: Asked) -> dict[str, dict[str, list[str]]]:
    """Method to question to what was found, best first."""
    found: dict[str, dict[str, list[str]]] = {
        name: {} for name in ("dense", "bm25", *FUSIONS, "shipped")
    }
    fusions = {
        name: make_provider("fusion", provider, options)
        for name, (provider, options) in FUSIONS.items()
    }
    with library.lease(namespace) as lease:
        strategy = library.query_strategy(lease)
        rows = lease.release.catalog.rows(lease.release.catalog.chunk_ids())

        def ids_of(chunk_id: str) -> list[str]:
            row = rows[chunk_id]
            if not asked.of_pages:
                return [Path(row.filename).stem]
            first, last = row.chunk.page_start or 0, row.chunk.page_end or row.chunk.page_start or 0
            return [f"{Path(row.filename).stem}#p{page}" for page in range(first, last + 1)]

        def listed(candidates: Sequence[Candidate]) -> list[str]:
            return list(
                dict.fromkeys(
                    name for candidate in candidates for name in ids_of(candidate.chunk_id)
                )
            )

        for query_id, text in asked.questions.items():
            try:
                query = analysis.prepare(
                    text,
                    library.settings.limits,
                    config=strategy.query,
                )
            # a set may hold a question without a word; it counts as one without results
            except InputError as error:
                print(
                    f"  {asked.name}: question {query_id} {text[:60]!r} was refused:"
                    f" {error.message}"
                )
                continue
            context = SearchContext(
                library,
                lease,
                strategy,
                QueryRequest(text),
                tracing.Trace("query", None, {"trace_id": ""}),
                Deadline.after(60.0),
            )
            both = retrievers.retrieve(
                context, query, "hybrid", Access(), strategy.retrieval.pool_k
            )
            found["dense"][query_id], found["bm25"][query_id] = (
                listed(both.dense),
                listed(both.sparse),
            )
            for name, fusion in fusions.items():
                found[name][query_id] = listed(
                    fusion.fuse(both.dense, both.sparse, trust=both.trust)
                )
            # a page set asks for pages, of which a document has many
            request = QueryRequest(
                text,
                namespace,
                top_k=DEPTH,
                answer=False,
                max_per_document=0 if asked.of_pages else 1,
            )
            hits = answer(library, request).hits
            found["shipped"][query_id] = list(
                dict.fromkeys(name for hit in hits for name in ids_of(hit.chunk_id))
            )
    return found


def measured(
    asked: Asked, found: Mapping[str, Mapping[str, list[str]]]
) -> dict[str, dict[str, Values]]:
    """Method to measure to the value of each question."""
    made: dict[str, dict[str, Values]] = {}
    for method, run in found.items():
        each = {q: measure_ranking(run.get(q, ()), of, (10,)) for q, of in asked.qrels.items()}
        made[method] = {
            name: {q: values[key] for q, values in each.items()} for name, key in MEASURES.items()
        }
    return made


# --- reporting ----------------------------------------------------------------------------------


def lines_of(values: Mapping[str, Mapping[str, Values]]) -> Iterator[str]:
    """A table of the methods of one set."""
    better = max(("dense", "bm25"), key=lambda leg: mean(values[leg]["nDCG@10"]))
    yield (
        f"  {'':<10}{'nDCG@10':>9}{'95 %':>16}{'MRR@10':>9}{'Hit@10':>9}   nDCG@10 against"
        f" {better}, 95 %"
    )
    for method, by_measure in values.items():
        whole = bootstrap(by_measure["nDCG@10"].values())
        base = values[better]["nDCG@10"]
        against = bootstrap(value - base[name] for name, value in by_measure["nDCG@10"].items())
        compared = (
            ""
            if method == better
            else f"   {against.value:+.4f}  {against.low:+.4f} .. {against.high:+.4f}"
        )
        yield (
            f"  {method:<10}{whole.value:9.4f}{f'{whole.low:.3f} .. {whole.high:.3f}':>16}"
            f"{mean(by_measure['MRR@10']):9.4f}{mean(by_measure['HitRate@10']):9.4f}{compared}"
        )


def summary(
    done: Mapping[str, Mapping[str, Mapping[str, Mapping[str, Values]]]],
    languages: Mapping[str, str],
) -> Iterator[str]:
    """Mean nDCG@10 over the sets of each language, and where the shipped order is below the better
    leg.
    """
    for strategy, sets in done.items():
        yield f"\n{strategy}: mean nDCG@10 over the sets by the language of their questions"
        for spoken in sorted(set(languages.values())):
            chosen = [values for name, values in sets.items() if languages[name] == spoken]
            if not chosen:
                continue
            means = {
                method: sum(mean(values[method]["nDCG@10"]) for values in chosen) / len(chosen)
                for method in chosen[0]
            }
            yield f"  {spoken}, {len(chosen)} sets: " + ", ".join(
                f"{method} {value:.3f}" for method, value in means.items()
            )
        for name, values in sets.items():
            better = max(mean(values["dense"]["nDCG@10"]), mean(values["bm25"]["nDCG@10"]))
            short = better - mean(values["shipped"]["nDCG@10"])
            if short > 0.005:
                yield f"  BELOW its better retriever on {name}: {short:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sets",
        nargs="*",
        metavar="FOLDER",
        help="a set, or QUESTIONS:CORPUS; all of the test material if not given",
    )
    parser.add_argument(
        "--strategy",
        action="append",
        metavar="NAME",
        help=f"repeatable; {', '.join(STRATEGIES)} if not given",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="HOME", help="keep libraries and embeddings here"
    )
    parser.add_argument(
        "--queries", type=int, metavar="N", help="only the first N questions of each set"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the means there as well")
    options = parser.parse_args()
    specs = options.sets or shipped_sets()
    if not specs:
        parser.error(f"no sets in {MATERIAL}; name a folder in BEIR's layout, or set RAG_TEST_DATA")
    root = options.keep or Path(tempfile.mkdtemp(prefix="rag-quality-"))
    settings = load_settings({"home": root / "home"})
    # every question counts once, and none may be answered from memory
    settings = settings.model_copy(
        update={"caches": settings.caches.model_copy(update={"retrievals": 0, "responses": 0})}
    )
    store = Store(settings.home)
    ledger = open_ledger(store)
    sets = [Asked(_first(open_dataset(spec), options.queries)) for spec in specs]
    done: dict[str, dict[str, dict[str, dict[str, Values]]]] = {}
    try:
        for name in options.strategy or STRATEGIES:
            for asked in sets:
                started = time.perf_counter()
                work = Workspace(
                    settings=settings,
                    store=store,
                    ledger=ledger,
                    strategy=load_strategy(settings, name),
                )
                namespace = publish_documents(asked.dataset, work)
                built = time.perf_counter() - started
                library = Library(settings, store)
                values = measured(asked, rankings(library, namespace, asked))
                library.close()
                done.setdefault(name, {})[asked.name] = values
                spent = time.perf_counter() - started - built
                of = f"{name}, {asked.name} ({asked.language}), {len(asked.questions)} questions"
                print(f"\n{of}: built in {built:.0f} s, asked in {spent:.0f} s")
                print("\n".join(lines_of(values)), flush=True)
        print("\n".join(summary(done, {asked.name: asked.language for asked in sets})))
        if options.json:
            means = {
                strategy: {
                    name: {
                        method: {measure: round(mean(found), 4) for measure, found in by.items()}
                        for method, by in values.items()
                    }
                    for name, values in by_set.items()
                }
                for strategy, by_set in done.items()
            }
            options.json.write_text(
                json.dumps(means, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
            )
    finally:
        if options.keep is None:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
