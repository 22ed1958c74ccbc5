"""The public contract of evaluations: the results of `/api/eval`, also shown by the pages."""

from __future__ import annotations

from typing import Any, NotRequired

# pydantic reads a TypedDict before Python 3.12 only in this form
from typing_extensions import TypedDict


class MetricPart(TypedDict):
    """The mean of a metric over the cases that have it, with its 95 % interval."""

    name: str
    value: float
    low: float
    high: float
    cases: int


class EvalRunPart(TypedDict):
    """A run in a list; `leading` has the metrics that lists show."""

    run_id: str
    started_at: str
    ended_at: str
    status: str  # running | done | failed | killed | cancelled | rejected (with its candidate)
    dataset_id: str
    dataset_version: str
    dataset_fingerprint: str
    namespace: str
    release_id: str
    strategy: str
    strategy_config_id: str
    mode: str
    metric_set_ids: list[str]
    judge_profile_id: str
    cases: int
    reused: int
    failed: int
    leading: dict[str, float]


class EvalRunsData(TypedDict):
    """Runs, newest first."""

    runs: list[EvalRunPart]
    next_cursor: NotRequired[str]


class SlicePart(TypedDict):
    """The means over the cases of one tag, language or file type."""

    kind: str
    name: str
    cases: int
    metrics: dict[str, float]


class FloorPart(TypedDict):
    """The minimum of a metric that a gate of the namespace requires, and whether it is reached."""

    metric: str
    floor: float
    value: float | None
    reached: bool


class GatePart(TypedDict):
    """The verdict of the gates on the release of a run; `markdown` has the reasons."""

    passed: bool
    markdown: str
    judged_this_run: bool


class EvalRunData(TypedDict):
    """One run with all its figures; `gate` is null if its release was not judged or is gone."""

    run: EvalRunPart
    metrics: list[MetricPart]
    slices: list[SlicePart]
    floors: list[FloorPart]
    gate: GatePart | None
    latency_ms: dict[str, float]
    usage: dict[str, float]
    seconds: float
    stale_labels: int
    unmeasured: int
    unjudged: int
    missed: int
    eval_profile_id: str
    providers: dict[str, dict[str, str]]  # module to id and version


class EvalCasePart(TypedDict):
    """The result of one case."""

    case_id: str
    query: str
    tags: list[str]
    metrics: dict[str, float]
    stale: list[dict[str, Any]]
    error: str
    trace_id: str
    latency_ms: float | None
    answered: bool | None
    confidence: float | None


class EvalCasesData(TypedDict):
    """One page of the selected cases of a run; `count` is of all pages."""

    run_id: str
    count: int
    cases: list[EvalCasePart]
    next_cursor: NotRequired[str]


class ExpectedPart(TypedDict):
    """One expectation of a case."""

    kind: str  # answer | text | citation | file | tag | chunk | refusal | document
    value: str
    file: str
    section: str


class RankedPart(TypedDict):
    """A candidate of a stage; `text` is empty if the release or the document was deleted."""

    rank: int
    chunk_id: str
    score: float
    source: str
    source_uri: str
    section_path: str
    text: str
    cited: bool
    in_context: bool


class EvalCaseData(TypedDict):
    """One case: its expectations, and what each stage found."""

    run: EvalRunPart
    case: EvalCasePart
    expected: list[ExpectedPart]
    expected_note: str  # why the expectations cannot be shown
    found: list[RankedPart]
    stages: dict[str, list[RankedPart]]
    latency_ms: dict[str, float]
    usage: dict[str, Any]
    flags: list[str]
    citations: list[str]


class TrendPart(TypedDict):
    """A metric in one run; `change` is since the previous run of the same cases, namespace,
    strategy and mode, null if that measured another number of cases.
    """

    run_id: str
    started_at: str
    dataset_id: str
    strategy: str
    release_id: str
    value: float
    low: float
    high: float
    cases: int
    change: float | None


class EvalTrendsData(TypedDict):
    """A metric over time, oldest first; `metrics` are the names of all measured ones."""

    metric: str
    metrics: list[str]
    points: list[TrendPart]


class DifferencePart(TypedDict):
    """A metric of two runs; `significant` if the 95 % interval of the difference excludes 0."""

    metric: str
    before: float
    after: float
    difference: float
    low: float
    high: float
    cases: int
    significant: bool


class FlipPart(TypedDict):
    """A case that is right in one run and wrong in the other."""

    case_id: str
    query: str
    metric: str
    before: float
    after: float
    trace_before: str
    trace_after: str


class EvalComparisonData(TypedDict):
    """Two runs of the same cases; `stale` are those of which a label is stale in one run only."""

    before: EvalRunPart
    after: EvalRunPart
    judges_differ: bool
    differences: list[DifferencePart]
    worse: list[FlipPart]
    better: list[FlipPart]
    stale: list[str]


class StrategyCell(TypedDict):
    """A metric of one strategy; `significant` if it differs from the first one's by more than
    chance.
    """

    value: float
    significant: bool


class StrategyRow(TypedDict):
    """A metric of every compared strategy."""

    metric: str
    values: dict[str, StrategyCell]


class StrategiesData(TypedDict):
    """The newest run of each strategy over one dataset and release, compared with the first."""

    dataset_id: str
    namespace: str
    release_id: str
    runs: dict[str, str]  # strategy to run_id
    rows: list[StrategyRow]


class PromotionPart(TypedDict):
    """The promotion of a strategy to be a namespace's own, and its outcome."""

    job_id: str
    namespace: str
    at: str
    before: str
    after: str
    by: str
    state: str
    verdict: str
    gate: bool | None
    release_id: str
    reason: str
    run_ids: list[str]


class DatasetPart(TypedDict):
    """A dataset that can be run by its name."""

    name: str
    cases: int
    fingerprint: str  # of its cases; runs with the same one can be compared
    problem: str  # why it cannot be read
    about: str  # the only library that has its documents; empty: any may


class EvalChoicesData(TypedDict):
    """The options for starting a run."""

    datasets: list[DatasetPart]
    strategies: list[str]
    evaluators: list[str]
    metric_sets: list[str]
    judges: list[str]
    modes: list[str]


class EvalJobData(TypedDict):
    """A started run; `run_id` is empty until it is done."""

    job_id: str
    state: str
    reason: str
    dataset: str
    namespace: str
    strategy: str
    done: int
    total: int
    run_id: str
    created_at: str


class SignalPart(TypedDict):
    """One drift signal of users' questions and answers, in both windows."""

    name: str
    measure: str
    before: str
    now: str
    distance: float
    limit: float
    drifted: bool


class DriftData(TypedDict):
    """The recent questions compared with the last stable window."""

    namespace: str
    questions: int
    stable_questions: int
    reason: str
    signals: list[SignalPart]


class GapPart(TypedDict):
    """Questions about one topic that the library does not answer well."""

    questions: list[str]
    trace_ids: list[str]
    times: int
    refused: int
    answered_now: bool
    nearest: list[dict[str, Any]]


class GapsData(TypedDict):
    """The gaps in a library's content, most frequent questions first."""

    namespace: str
    days: int
    asked: int
    gaps: list[GapPart]


class LostCanaryPart(TypedDict):
    """A canary that the previous release found and this one does not."""

    case_id: str
    query: str
    document: str
    # document_gone | text_gone (the label is stale) | recut (its text is in another chunk) |
    # outranked (`by` the document that comes first) | failed
    cause: str
    by: str
    trace_id: str


class CanariesData(TypedDict):
    """The results of canaries, questions generated from the previous release."""

    namespace: str
    release_id: str
    before: str
    made: int
    asked: int
    found: float | None
    seconds: float
    lost: list[LostCanaryPart]


class PromptPart(TypedDict):
    """A version of a prompt; in an experiment it gets a `share` of the questions."""

    name: str
    version: int
    status: str
    by: str
    at: str
    share: float | None
