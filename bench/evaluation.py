"""Are the figures those of trec_eval, what do they cost, and how much memory does a long run take?

    python bench/evaluation.py [--cases 2000] [--rounds 5] [--ragas PYTHON] [--runs 1000 4000]
    [--taken-over 10000 100000]

The same made-up cases (graded labels, rankings that name a thing twice, and empty ones) are
measured by the metric set `retrieval` and by trec_eval's own loop, called by pytrec_eval without
ir-measures between. --ragas names a Python in which ragas is installed; it measures the recall of
all that was retrieved, the one figure that it has without a model, of the same cases. Costs are
processor time, the measurers taking turns.

Then a small library is asked --runs cases, each run in a process of its own: its peak memory beside
that of the cases alone, and its processor time beside that of its questions. Runs of --taken-over
cases find every result in the store, as after an earlier run, so that what is left is the
evaluation's own. Ends with exit code 1 where a figure differs from trec_eval's by more than 1e-9.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from small_library import NAMESPACE, Place

from rag_platform.answering.engine import answer
from rag_platform.evaluation import runs
from rag_platform.evaluation.cases import K_VALUES, Dataset, EvalCase
from rag_platform.evaluation.labels import Labels
from rag_platform.evaluation.measuring import AskedCase
from rag_platform.evaluation.metrics import mean
from rag_platform.evaluation.results import CaseResult, EvalRun, ResultStore
from rag_platform.ir import Hit, QueryRequest, QueryResult
from rag_platform.registry import make_provider
from rag_platform.retrieval.library import Library

TOLERANCE = 1e-9
TREC_EVAL = {"hit_rate": "success", "recall": "recall", "ndcg": "ndcg_cut", "mrr": "recip_rank"}
TOPICS = 200  # documents of the small library
TEN = range(10)
RAGAS = """
import asyncio, json, sys, time
from ragas.dataset_schema import SingleTurnSample
from ragas.metrics import IDBasedContextRecall
cases = [
    SingleTurnSample(retrieved_context_ids=found, reference_context_ids=wanted)
    for found, wanted in json.load(sys.stdin)
]
async def measure():
    metric = IDBasedContextRecall()
    return [await metric.single_turn_ascore(case) for case in cases]
started = time.process_time()
values = asyncio.run(measure())
json.dump({"seconds": time.process_time() - started, "values": values}, sys.stdout)
"""


def main() -> None:
    """Print agreement, cost and memory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, nargs="*", default=[1000, 4000])
    parser.add_argument("--taken-over", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--ragas", type=Path, metavar="PYTHON")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        work, folder, count = arguments.child
        print(json.dumps(CHILDREN[work](Path(folder), int(count))))
        return
    items = make_cases(arguments.cases)
    differences = compare_figures(items)
    compare_costs(items, arguments.rounds, arguments.ragas)
    if arguments.runs or arguments.taken_over:
        measure_runs(arguments.runs, arguments.taken_over)
    if max(differences) > TOLERANCE:
        raise SystemExit(f"a figure differs from trec_eval's by {max(differences):.3g}")


# --- figures and their cost ----------------------------------------------------------------------


def make_cases(count: int) -> list[AskedCase]:
    """Cases with up to five graded labels and up to 50 hits, as they come out of the engine."""
    chance = random.Random(7)
    found = []
    for number in range(count):
        names = [f"chk_{number}_{place}" for place in range(60)]
        grades = {name: chance.randint(0, 3) for name in chance.sample(names, chance.randint(1, 5))}
        shown = chance.choices(names, k=chance.choice((0, 3, 10, 10, 10, 50)))
        labels = Labels("chunk", grades)
        for name in grades:
            labels.chunks[name].add(name)
        hits = tuple(make_hit(rank, name) for rank, name in enumerate(shown, 1))
        result = QueryResult("", (), hits, 0.0, "none", {}, None, "", "")
        case = EvalCase(case_id=f"case {number}", query="?", relevance_chunk=grades)
        found.append(AskedCase(case, labels, result))
    return found


def make_hit(rank: int, chunk_id: str) -> Hit:
    """A hit of which only the chunk matters."""
    return Hit(rank, chunk_id, 1 / rank, "hybrid", "doc", "v", "a.md", "a.md", "", "", 0, "")


def measure(items: Sequence[AskedCase]) -> dict[str, dict[str, float]]:
    """The figures of the metric set, by metric and case."""
    by_metric: dict[str, dict[str, float]] = defaultdict(dict)
    for case_id, values in (
        make_provider("metric_set", "retrieval").compute(items, K_VALUES).items()
    ):
        for metric, value in values.items():
            by_metric[metric][case_id] = value
    return by_metric


def measure_by_trec_eval(items: Sequence[AskedCase]) -> dict[str, dict[str, float]]:
    """The same figures by trec_eval's loop; its reciprocal rank has no cut-off, so rankings are cut
    for it.
    """
    import pytrec_eval

    labelled = [item for item in items if any(item.labels.grades.values())]
    qrels = {item.case.case_id: dict(item.labels.grades) for item in labelled}
    ranked = {item.case.case_id: rank(item) for item in labelled}
    at = ",".join(map(str, K_VALUES))
    cut = {f"{TREC_EVAL[name]}.{at}" for name in ("hit_rate", "recall", "ndcg")}
    found = pytrec_eval.RelevanceEvaluator(qrels, cut).evaluate(ranked)
    by_metric: dict[str, dict[str, float]] = defaultdict(dict)
    for k in K_VALUES:
        for name in ("hit_rate", "recall", "ndcg"):
            for case_id, values in found.items():
                key = f"retrieval.{name}@{k}"
                by_metric[key][case_id] = values[f"{TREC_EVAL[name]}_{k}"]
        head = {
            case_id: dict(list(scores.items())[:k]) for case_id, scores in ranked.items() if scores
        }
        evaluator = pytrec_eval.RelevanceEvaluator(qrels, {TREC_EVAL["mrr"]})
        for case_id, values in evaluator.evaluate(head).items():
            by_metric[f"retrieval.mrr@{k}"][case_id] = values[TREC_EVAL["mrr"]]
    return by_metric


def rank(item: AskedCase) -> dict[str, float]:
    """Each chunk once with the negative of its place, as trec_eval reads a ranking."""
    return {
        chunk_id: float(-place)
        for place, chunk_id in enumerate(dict.fromkeys(hit.chunk_id for hit in item.result.hits))
    }


def compare_figures(items: Sequence[AskedCase]) -> list[float]:
    """Print each metric by both, and return the largest difference of a case by metric."""
    ours, theirs = measure(items), measure_by_trec_eval(items)
    differences = []
    print(f"{len(items)} cases\n\n| metric | cases | mean | trec_eval | largest difference |")
    print("|---|---|---|---|---|")
    for metric in sorted(ours):
        # trec_eval leaves out a question without results, which counts 0 here
        other = {case_id: theirs[metric].get(case_id, 0.0) for case_id in ours[metric]}
        extra = theirs[metric].keys() - ours[metric].keys()
        apart = [abs(value - other[case_id]) for case_id, value in ours[metric].items()]
        differences.append(max(apart, default=0.0) if not extra else float("inf"))
        print(
            f"| {metric} | {len(other)} | {mean(ours[metric]):.6f} | {mean(other):.6f} |"
            f" {differences[-1]:.1e} |"
        )
    if ours.keys() != theirs.keys():
        raise SystemExit(f"only one side measures {sorted(ours.keys() ^ theirs.keys())}")
    return differences


def compare_costs(items: Sequence[AskedCase], rounds: int, ragas: Path | None) -> None:
    """Print the processor time of each measurer, the middle one of the rounds."""
    spent: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        spent["metric set retrieval, 16 metrics"].append(timed(lambda: measure(items)))
        spent["trec_eval's loop, the same 16"].append(timed(lambda: measure_by_trec_eval(items)))
        if ragas is not None:
            spent["ragas, recall alone"].append(time_ragas(items, ragas))
    print("\n| measurer | processor time for a case |\n|---|---|")
    for name, seconds in spent.items():
        print(f"| {name} | {sorted(seconds)[len(seconds) // 2] / len(items) * 1e6:.0f} µs |")


def timed(work: Callable[[], object]) -> float:
    """Processor seconds of a call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def time_ragas(items: Sequence[AskedCase], python: Path) -> float:
    """Processor seconds of ragas for the recall of each case, which must be the one computed here:
    the share of the labelled chunks that were retrieved.
    """
    pairs = [
        ([hit.chunk_id for hit in item.result.hits], list(item.labels.grades)) for item in items
    ]
    ended = subprocess.run(
        [str(python), "-c", RAGAS],
        input=json.dumps(pairs),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if ended.returncode:
        raise SystemExit(f"{python} cannot run ragas: {ended.stderr.strip().splitlines()[-1]}")
    found = json.loads(ended.stdout)
    for (shown, wanted), value in zip(pairs, found["values"], strict=True):
        if abs(len(set(shown) & set(wanted)) / len(set(wanted)) - value) > TOLERANCE:
            raise SystemExit(f"ragas says {value} of {shown} for {wanted}")
    return float(found["seconds"])


# --- whole runs ----------------------------------------------------------------------------------


def measure_runs(counts: Sequence[int], taken_over: Sequence[int]) -> None:
    """Print peak memory and time of runs of so many cases."""
    with tempfile.TemporaryDirectory(prefix="rag-evaluation-") as folder:
        place = Place(Path(folder), Path(folder) / "home").enter()
        write_documents(place)
        print(
            "\n| cases | peak of the cases alone | peak of the run | time of the questions | run |"
        )
        print("|---|---|---|---|---|")
        for count, taken in [*((each, False) for each in counts), *((n, True) for n in taken_over)]:
            held = run_child("hold", folder, count)
            asked = None if taken else run_child("ask", folder, count)
            run = run_child("take_over" if taken else "evaluate", folder, count)
            print(
                f"| {count}{', taken over' if taken else ''} | {held['peak_mb']:.0f} MB |"
                f" {run['peak_mb']:.0f} MB |"
                f" {'' if asked is None else format(asked['seconds'], '.1f') + ' s'} |"
                f" {run['seconds']:.1f} s |",
                flush=True,
            )


def write_documents(place: Place) -> None:
    """Publish a library of one document a topic."""
    place.docs.mkdir(parents=True)
    for number in range(TOPICS):
        text = f"# Topic {number}\n\nThe valve{number} opens at {number} degrees.\n"
        (place.docs / f"topic-{number}.md").write_text(text, encoding="utf-8")
    place.update()


def run_child(work: str, folder: str, count: int) -> dict[str, float]:
    """What a fresh process prints: its peak and its processor seconds."""
    ended = subprocess.run(
        [sys.executable, __file__, "--child", work, folder, str(count)],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise SystemExit(ended.stderr)
    found: dict[str, float] = json.loads(ended.stdout)
    return found


def make_dataset(count: int) -> Dataset:
    """So many questions about the topics."""
    cases = tuple(
        EvalCase(
            case_id=f"case {number}",
            query=f"When does valve{number % TOPICS} open, asked for the {number}. time?",
            tags=("even" if number % 2 == 0 else "odd",),
            expected_files=(f"topic-{number % TOPICS}.md",),
        )
        for number in range(count)
    )
    return Dataset(dataset_id="made-up", version="1", cases=cases)


@contextmanager
def opened(folder: Path) -> Iterator[Library]:
    """The library of the folder in this process."""
    place = Place(folder, folder / "home").enter()
    with runs.open_library(place.settings, place.store) as library:
        yield library


def hold(folder: Path, count: int) -> dict[str, float]:
    """Ask one question and hold the cases: what a run of any kind takes."""
    dataset = make_dataset(count)
    with opened(folder) as library:
        answer(library, QueryRequest(dataset.cases[0].query, NAMESPACE, answer=False))
    return {"peak_mb": peak_mb()}


def ask(folder: Path, count: int) -> dict[str, float]:
    """Ask the questions as a run does, and nothing more."""
    cases = make_dataset(count).cases
    with opened(folder) as library, ThreadPoolExecutor(runs._THREADS) as pool:
        started = time.process_time()
        for case in cases[:1], cases[1:]:
            requests = (
                QueryRequest(each.query, NAMESPACE, top_k=10, answer=False, max_per_document=1)
                for each in case
            )
            for _ in pool.map(lambda request: answer(library, request).trace_id, requests):
                pass
        return {"seconds": time.process_time() - started}


class Remembering(ResultStore):
    """A store in which an earlier run left a result for every case."""

    def find_known(self, keys: Iterable[str]) -> dict[str, CaseResult]:
        """A result for each key, half of them misses."""
        names = [f"retrieval.{name}@{k}" for name in TREC_EVAL for k in K_VALUES]
        retrieved = [{"chunk_id": f"chk_{n:032x}", "score": 0.5, "source": "hybrid"} for n in TEN]
        return {
            key: CaseResult(
                case_id="",
                position=0,
                key=key,
                query="",
                metrics=dict.fromkeys(names, float(place % 2)),
                artifacts={"retrieved": retrieved},
            )
            for place, key in enumerate(keys)
        }


def evaluate(folder: Path, count: int) -> dict[str, float]:
    """A run in which every case is asked."""
    found, run = run_with(ResultStore, folder, count, reuse=False)
    hit_rate = run.aggregates["retrieval.hit_rate@10"]["value"]
    if run.failed or run.reused or hit_rate < 0.99:
        raise SystemExit(f"{run.failed} questions failed, hit rate {hit_rate:.3f}: a wrong library")
    return found


def take_over(folder: Path, count: int) -> dict[str, float]:
    """A run in which no case needs to be asked."""
    found, run = run_with(Remembering, folder, count, reuse=True)
    if run.reused != count or run.aggregates["retrieval.hit_rate@10"]["value"] != 0.5:
        raise SystemExit(f"{run.reused} of {count} results were taken over")
    return found


def run_with(
    kind: type[ResultStore], folder: Path, count: int, *, reuse: bool
) -> tuple[dict[str, float], EvalRun]:
    """Peak and processor seconds of a run, and the run."""
    dataset = make_dataset(count)
    options = runs.RunOptions(namespace=NAMESPACE, mode="retrieval_only", reuse=reuse)
    home = folder / f"results-{kind.__name__}-{count}"
    with opened(folder) as library, closing(kind(home)) as store:
        started = time.process_time()
        run = runs.evaluate(library, dataset, options, store)
        seconds = time.process_time() - started
    return {"peak_mb": peak_mb(), "seconds": seconds}, run


def peak_mb() -> float:
    """The most memory that this program has held, from /proc, so Linux only: what getrusage says
    begins with the size of the process that started it.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024  # type: ignore[index]


CHILDREN: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "hold": hold,
    "ask": ask,
    "evaluate": evaluate,
    "take_over": take_over,
}


if __name__ == "__main__":
    main()
