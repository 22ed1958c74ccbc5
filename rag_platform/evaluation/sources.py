"""Finds a dataset by its name or path and reads it with the provider of its kind."""

from __future__ import annotations

from pathlib import Path

from rag_platform.config.settings import config_dir
from rag_platform.errors import InputError, NotFoundError
from rag_platform.evaluation.cases import Dataset
from rag_platform.evaluation.datasets.beir import is_page_set, is_retrieval_set
from rag_platform.registry import build

_BY_SUFFIX = {".jsonl": "jsonl", ".yaml": "yaml", ".yml": "yaml", ".json": "knowledge_json"}


def open_dataset(name: str) -> Dataset:
    """The dataset of a path, or of a name under `datasets/` in the config folder; `A:B` asks the
    questions of folder A of the texts of folder B.

    Raises NotFoundError `unknown_dataset` naming the known ones, InputError for one that cannot be
    read.
    """
    path = Path(name).expanduser()
    if not path.exists() and ":" in name:
        questions, _, corpus = name.partition(":")
        return _load("beir", Path(questions), corpus=corpus)
    if not path.exists():
        known = dataset_names()
        path = known.get(name, path)
        if not path.exists():
            raise NotFoundError(
                f"no dataset {name!r}; it is a file (.jsonl, .yaml, .json), a folder in BEIR's"
                f" layout, or one of config/datasets: {', '.join(known) or 'none there'}",
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
    if path.suffix.lower() not in _BY_SUFFIX:
        raise InputError(
            f"{path.name}: a dataset is a file of {', '.join(_BY_SUFFIX)}", code="invalid_dataset"
        )
    return _load(_BY_SUFFIX[path.suffix.lower()], path)


def dataset_names() -> dict[str, Path]:
    """The datasets of the config folder by name."""
    folder = config_dir() / "datasets"
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.stem: path for path in found if path.suffix.lower() in _BY_SUFFIX}


def _load(provider: str, path: Path, **options: str) -> Dataset:
    dataset: Dataset = build("dataset", provider, options).load(path)
    return dataset
