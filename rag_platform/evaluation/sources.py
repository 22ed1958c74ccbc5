"""Finds a dataset by its name or path and reads it with the provider of its kind; imports datasets
into the config folder.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from rag_platform.config.folders import config_dir
from rag_platform.config.gates import DATASET_PROVIDERS, dataset_names, dataset_path
from rag_platform.errors import ConfigError, InputError, NotFoundError
from rag_platform.evaluation.cases import Dataset, invalid_dataset
from rag_platform.evaluation.datasets.beir import is_page_set, is_retrieval_set
from rag_platform.evaluation.expectations import read_expectations
from rag_platform.registry import make_provider, takes
from rag_platform.storage.store import Store, atomic_path

_STORED = re.compile(r"(traces|expectations):([^?]*)(?:\?(.*))?")


def open_dataset(name: str, home: Path | None = None) -> Dataset:
    """The dataset of a path (absolute, or relative to the current or the config folder), or of a
    name under `datasets/` in the config folder. `A:B` has the questions of folder A and the texts
    of folder B. `expectations:NAMESPACE` and `traces:NAMESPACE?size=50&seed=7` are made from the
    data root `home`.

    Raises NotFoundError `unknown_dataset` with the known ones, InputError for one that cannot be
    read.
    """
    if home is not None and (stored := _STORED.fullmatch(name)):
        return _open_stored(home, stored[1], stored[2], stored[3] or "")
    path = Path(name).expanduser()
    if not path.exists() and ":" in name:
        questions, _, corpus = name.partition(":")
        return _load("beir", Path(questions), corpus=corpus)
    if not path.exists():
        path = dataset_path(name)
    if not path.exists():
        known = ", ".join(dataset_names()) or "none there"
        raise NotFoundError(
            f"no dataset {name!r}; it is a file ({', '.join(DATASET_PROVIDERS)}), a folder in"
            f" BEIR's layout, or one of config/datasets: {known}",
            code="unknown_dataset",
        )
    if path.is_dir():
        if not (is_retrieval_set(path) or is_page_set(path)):
            raise InputError(
                f"{path} is no dataset: it holds neither corpus.jsonl, queries.jsonl and qrels.tsv"
                " nor questions.jsonl and qrels_pages.tsv",
                code="invalid_dataset",
            )
        return _load("beir", path)
    if path.suffix.lower() not in DATASET_PROVIDERS:
        raise invalid_dataset(path.name, f"a dataset is a file of {', '.join(DATASET_PROVIDERS)}")
    return _load(DATASET_PROVIDERS[path.suffix.lower()], path)


def _open_stored(home: Path, provider: str, namespace: str, options: str) -> Dataset:
    """Raises InputError `invalid_dataset` for an unknown option and one that is not a number."""
    given: dict[str, Any] = {"namespace": namespace} if namespace else {}
    for name, value in parse_qsl(options, keep_blank_values=True):
        if not takes("dataset", provider, name) or not value.isdigit():
            raise invalid_dataset(
                f"{provider}:{namespace}?{options}",
                f"{name}={value} is no option; write for example traces:NAMESPACE?size=50&seed=7",
            )
        given[name] = int(value)
    return _load(provider, home, **given)


def find_dataset(home: Path, dataset_id: str, namespace: str) -> Dataset | None:
    """The dataset of the config folder with this id, or the namespace's expectations if it is
    theirs.
    """
    expected = read_expectations(Store(home), namespace)
    if dataset_id == expected.dataset_id:
        return expected
    for path in dataset_names().values():
        try:
            dataset = _read_dataset(path, path.stat().st_mtime_ns)
        except (ConfigError, InputError, OSError):  # `list_datasets` says what is wrong with it
            continue
        if dataset.dataset_id == dataset_id:
            return dataset
    return None


@lru_cache(maxsize=8)
def _read_dataset(path: Path, _modified: int) -> Dataset:
    return open_dataset(str(path))


def _load(provider: str, path: Path, **options: Any) -> Dataset:
    try:
        dataset: Dataset = make_provider("dataset", provider, options).load(path)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path.name} is not UTF-8 ({error}); save it in this encoding", code="invalid_dataset"
        ) from error
    return dataset


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
