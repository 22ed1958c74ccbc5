"""Which release changed an answer: a binary search over the releases that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rag_platform.errors import NotFoundError
from rag_platform.evaluation.cases import Dataset, EvalCase
from rag_platform.evaluation.expectations import TOP, judge
from rag_platform.evaluation.gates import describe_changes
from rag_platform.evaluation.results import ResultStore
from rag_platform.evaluation.runs import UNPROVED, RunOptions, evaluate
from rag_platform.retrieval.library import Library


@dataclass(frozen=True, slots=True)
class Bisection:
    """`release_id` is the first release that answers as the newest does, `before` the one below it;
    both are the oldest where nothing changed.
    """

    met: bool  # whether the newest release meets the expectation
    reason: str  # why not
    release_id: str
    before: str | None  # None: every release that is kept answers alike
    changes: tuple[str, ...]  # between the two
    asked: tuple[str, ...]  # releases, in the order they were asked


def bisect(
    library: Library,
    namespace: str,
    release_ids: Sequence[str],
    case: EvalCase,
    store: ResultStore,
) -> Bisection:
    """The release that changed whether a case is met, of releases from oldest to newest; it asks
    1 + log2(their number) of them. Raises NotFoundError without releases.
    """
    if not release_ids:
        raise NotFoundError(f"namespace {namespace!r} has no releases", code="no_release")
    asked: list[str] = []
    dataset = Dataset(dataset_id="bisect", version="1", cases=(case,), k_values=(TOP, 10))

    def ask(release_id: str) -> tuple[bool, str]:
        asked.append(release_id)
        with library.lease(namespace, release_id) as lease:
            config = library.config_id(lease.strategy)
        run = evaluate(
            library,
            dataset,
            RunOptions(
                namespace=namespace, release_id=release_id, strategy=config, metric_sets=UNPROVED
            ),
            store,
        )
        verdict = judge(next(iter(store.cases(run.run_id))))
        return verdict.met, verdict.reason

    met, reason = ask(release_ids[-1])
    low, high = 0, len(release_ids) - 1  # the newest answers alike; so may all from some place on
    while low < high:
        middle = (low + high) // 2
        if ask(release_ids[middle])[0] == met:
            high = middle
        else:
            low = middle + 1
    if high == 0:
        return Bisection(met, reason, release_ids[0], None, (), tuple(asked))
    before, after = release_ids[high - 1], release_ids[high]
    with library.lease(namespace, before) as old, library.lease(namespace, after) as new:
        changes = describe_changes(old, new)
    return Bisection(met, reason, after, before, changes, tuple(asked))
