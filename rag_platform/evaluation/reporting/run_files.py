"""Writes a run as files for other programs: to `evaluations/<run_id>/` under the data root, or as
one file that the user names.

In the folder, `run.parquet` has one row, `cases.parquet` one per case, with `metrics` as a map of
name to value; `report.json` and `report.md` have the same content as the command line's output.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from rag_platform.errors import InputError
from rag_platform.evaluation.comparing import Comparison
from rag_platform.evaluation.reporting.reports import MOST_CASES, compare_markdown, run_markdown
from rag_platform.evaluation.results import CaseFilter, CaseResult, EvalRun, ResultStore
from rag_platform.ir import Json
from rag_platform.storage.evaluation_files import run_folder
from rag_platform.storage.records import to_json
from rag_platform.storage.store import atomic_path, require_folder, write_json, write_text

_ROWS = 1000  # cases in memory at a time


def write_run_files(
    home: Path, run: EvalRun, store: ResultStore, difference: Comparison | None = None
) -> Path:
    """Write the files of a run and return their folder; `difference` is that to its baseline."""
    folder = run_folder(home, run.run_id)
    folder.mkdir(parents=True, exist_ok=True)
    _write_parquet(folder / "run.parquet", [_run_row(run)], _schema(*_RUN_COLUMNS))
    rows = (_case_row(run.run_id, result) for result in store.cases(run.run_id))
    _write_parquet(folder / "cases.parquet", rows, _schema(*_CASE_COLUMNS))
    missed, _ = store.find_cases(run.run_id, CaseFilter(missed=True), limit=MOST_CASES)
    text = run_markdown(run, missed)
    report: Json = {"run": to_json(run), "missed": to_json(missed)}
    if difference is not None:
        text += f"\n\n{compare_markdown(difference)}"
        report["difference"] = difference_data(difference)
    write_json(folder / "report.json", report)
    write_text(folder / "report.md", f"{text}\n")
    return folder


def difference_data(found: Comparison) -> Json:
    """A comparison with the baseline of a run as JSON."""
    return {"baseline_run_id": found.before.run_id, **comparison_data(found)}


def comparison_data(found: Comparison) -> Json:
    """A comparison as JSON."""
    return {
        "differences": to_json(found.differences),
        "worse": to_json(found.worse),
        "better": to_json(found.better),
        "stale": list(found.stale),
    }


def _write_parquet(path: Path, rows: Iterable[Json], schema: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    remaining: Iterator[Json] = iter(rows)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        while part := list(islice(remaining, _ROWS)):
            writer.write_table(pa.Table.from_pylist(part, schema=schema))


def _run_row(run: EvalRun) -> Json:
    metrics = {name: item["value"] for name, item in run.aggregates.items()}
    return {**to_json(run), "metrics": list(metrics.items()), "figures": _text(run.figures)}


def _case_row(run_id: str, result: CaseResult) -> Json:
    return {
        **to_json(result),
        "run_id": run_id,
        "metrics": list(result.metrics.items()),
        "stale": _text(result.stale),
        "artifacts": _text(result.artifacts),
    }


# the columns of texts, of integers and of lists of texts
_RUN_COLUMNS = (
    "run_id started_at ended_at status dataset_id dataset_version dataset_fingerprint namespace"
    " release_id strategy strategy_config_id eval_profile_id judge_profile_id mode figures",
    "cases reused failed",
    "metric_set_ids",
)
_CASE_COLUMNS = ("run_id case_id key query stale error trace_id artifacts", "position", "tags")


def _schema(texts: str, integers: str, lists: str) -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            *((name, pa.string()) for name in texts.split()),
            *((name, pa.int64()) for name in integers.split()),
            *((name, pa.list_(pa.string())) for name in lists.split()),
            ("metrics", pa.map_(pa.string(), pa.float64())),
        ]
    )


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# --- a single file, for export --------------------------------------------------------------------

_COLUMNS = ("case_id", "query", "tags", "error", "stale", "trace_id")


def export_run(run: EvalRun, store: ResultStore, path: Path) -> int:
    """Write a run and its case results, and return the number of cases. A `.jsonl` file has the run
    on the first line and then one case per line, a `.csv` file one case per row with a column per
    metric. Raises InputError `invalid_path` for another suffix and for an existing file.
    """
    suffix = path.suffix.lower()
    if suffix not in _WRITERS:
        raise InputError(
            f"{path.name}: a run is written as {', '.join(_WRITERS)}", code="invalid_path"
        )
    if path.exists():
        raise InputError(f"{path} exists; name a new file", code="invalid_path")
    require_folder(path)
    with atomic_path(path) as temporary:
        _WRITERS[suffix](run, store.cases(run.run_id), temporary)
    _, count = store.find_cases(run.run_id, CaseFilter(), limit=0)
    return count


def _write_jsonl(run: EvalRun, results: Iterable[CaseResult], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(_line({"eval_run": to_json(run)}))
        file.writelines(_line({"eval_case_result": to_json(result)}) for result in results)


def _line(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


def _write_csv(run: EvalRun, results: Iterable[CaseResult], path: Path) -> None:
    metrics = sorted(run.aggregates)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*_COLUMNS, *metrics])
        for result in results:
            stale = [f"{label['label']}: {label['reason']}" for label in result.stale]
            facts = (
                result.case_id,
                result.query,
                "; ".join(result.tags),
                result.error,
                "; ".join(stale),
                result.trace_id,
            )
            writer.writerow([*facts, *(result.metrics.get(name, "") for name in metrics)])


_WRITERS = {".jsonl": _write_jsonl, ".csv": _write_csv}
