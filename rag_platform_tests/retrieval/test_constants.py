"""docs/retrieval.md lists every constant of the query path with its value and its source."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
_CONSTANT = re.compile(r"((?:^# .*\n)+)^([A-Z_]+): Final = ", re.MULTILINE)


def rows(module: str) -> list[str]:
    """The rows of the table: name, value, what it is, source."""
    loaded = importlib.import_module(module)
    found = []
    for comment, name in _CONSTANT.findall(inspect.getsource(loaded)):
        lines = [line.removeprefix("# ") for line in comment.splitlines()]
        what, _, source = " ".join(line for line in lines if "---" not in line).rpartition("; ")
        found.append(f"| `{name}` | {getattr(loaded, name)} | {what} | {source} |")
    return found


@pytest.mark.parametrize(
    "module", [f"rag_platform.{stage}.constants" for stage in ("query", "retrieval", "answering")]
)
def test_every_constant_has_a_source_and_stands_in_the_documents(module: str) -> None:
    table = rows(module)
    document = (REPOSITORY / "docs" / "retrieval.md").read_text(encoding="utf-8").splitlines()
    public = [name for name in vars(importlib.import_module(module)) if name.isupper()]
    assert len(table) == len(public)
    assert [row for row in table if row not in document] == []
    for row in table:
        source = row.split(" | ")[-1].removesuffix(" |")
        decision = source.startswith("docs/decisions/")
        if decision:
            assert list(REPOSITORY.glob(f"{source}-*.md")), row
        assert decision or source == "chosen by hand" or re.search(r"\b(?:19|20)\d\d$", source), row
