"""Imports datasets into the config folder, and exports runs for other programs."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rag_platform.config.folders import config_dir
from rag_platform.errors import InputError, NotFoundError
from rag_platform.evaluation.cases import Dataset
from rag_platform.evaluation.results import CaseResult, EvalRun, ResultStore
from rag_platform.evaluation.sources import dataset_names, open_dataset
from rag_platform.ir import Json
from rag_platform.storage.records import to_json
from rag_platform.storage.store import atomic_path

_COLUMNS = ("case_id", "query", "tags", "error", "stale", "trace_id")


@dataclass(frozen=True, slots=True)
class ImportedDataset:
    """A dataset of the config folder; `state` is `new`, `replaced` or `unchanged`."""

    path: Path
    dataset: Dataset
    state: str


def import_dataset(source: Path, *, name: str = "", replace: bool = False) -> ImportedDataset:
    """Check a dataset file and copy it into `datasets/` of the config folder, under its own name or
    another.

    Raises NotFoundError `unknown_dataset` if there is no such file. Raises InputError
    `invalid_dataset`, naming the line or the case, for an unreadable file, and `dataset_exists` if
    another dataset of the config folder has the name and `replace` is false.
    """
    suffix = source.suffix.lower()
    if not source.is_file():
        raise NotFoundError(
            f"{source} is no file; a folder in BEIR's layout is not imported: name it with `rag"
            " eval run --dataset`",
            code="unknown_dataset",
        )
    dataset = open_dataset(str(source))
    name = name or source.stem
    if name != Path(name).name or name.startswith("."):
        raise InputError(
            f"{name!r} names no dataset: it is a file's name without folder and ending",
            code="invalid_dataset",
        )
    target = config_dir() / "datasets" / f"{name}{suffix}"
    known = dataset_names().get(name)
    if known is not None and known.parent != target.parent:
        known = None  # a shipped one is not replaced, only hidden
    if known is not None and known.suffix.lower() == suffix:
        if known.read_bytes() == source.read_bytes():
            return ImportedDataset(known, dataset, "unchanged")
        target = known
    if known is not None and not replace:
        raise InputError(
            f"{known} is another dataset of the name {name!r}; import this one with --name NAME, or"
            " over it with --replace",
            code="dataset_exists",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)
    if known is not None and known != target:
        known.unlink()  # it had another suffix
    return ImportedDataset(target, dataset, "new" if known is None else "replaced")


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
    count = 0

    def counted() -> Iterator[CaseResult]:
        nonlocal count
        for result in store.cases(run.run_id):
            count += 1
            yield result

    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        _WRITERS[suffix](run, counted(), temporary)
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
