"""Answers at ten libraries of one to five short files, as a person's first library is.

    python bench/small_answers.py [--strategy fast] [--half tuned|untouched] [--searches]
    [--keep HOME] [--results FILE]

`small_libraries.yaml` beside this file holds the documents, questions with their evidence, and
questions that nothing answers. A library's half goes by the hash of its name. Figures are those of
`bench/answers.py`, and --results writes what `bench/train_states.py` reads.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import answers
import yaml

from rag_platform.ir import Json
from rag_platform.text.scripts import is_wide

LIBRARIES = Path(__file__).with_name("small_libraries.yaml")


def load_libraries(half: str | None) -> list[Json]:
    """The libraries of one half, or all of them."""
    libraries = yaml.safe_load(LIBRARIES.read_text(encoding="utf-8"))
    ordered = sorted(libraries, key=lambda item: hashlib.sha256(item["name"].encode()).hexdigest())
    middle = len(ordered) // 2
    return {"tuned": ordered[:middle], "untouched": ordered[middle:]}.get(half or "", ordered)


def read_questions(library: Json) -> dict[str, Json]:
    """The questions of a library by id, as the judge of people's questions reads them."""
    name = library["name"]
    found: dict[str, Json] = {}
    for number, row in enumerate([*library["asked"], *library["unknown"]], 1):
        question: Json = {
            "id": f"small-{name}-{number}",
            "question": row["ask"],
            "lang": "zh" if is_wide(row["ask"]) else "en",
            "near": name,
        }
        if "evidence" in row:
            spans = [{"file": file, "text": row["evidence"]} for file in library["files"]]
            question |= {"corpus": name, "type": "small", "match": "any", "evidence": spans}
        found[question["id"]] = question
    return found


def read_phrasings(library: Json) -> dict[str, list[str]]:
    """One search phrasing a question, by the question's id."""
    rows = [*library["asked"], *library["unknown"]]
    return {key: [row["search"]] for key, row in zip(read_questions(library), rows, strict=True)}


def write_documents(library: Json, folder: Path) -> list[Path]:
    """The folder with the files of a library."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in library["files"].items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder]


def main() -> None:
    """Build, ask, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--material", type=Path, default=answers.MATERIAL)
    parser.add_argument("--strategy", default="fast")
    parser.add_argument("--half", choices=("tuned", "untouched"), help="both, if not given")
    parser.add_argument("--searches", action="store_true", help="give the phrasings along")
    parser.add_argument("--keep", type=Path, metavar="HOME", help="a data root to use again")
    parser.add_argument("--results", type=Path, metavar="FILE", help="write the results there")
    given = parser.parse_args()
    judge = answers.load_judge(given.material / "questions")
    questions: dict[str, Json] = {}
    phrasings: dict[str, list[str]] = {}
    namespaces: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        home = given.keep or Path(scratch)
        os.environ |= {"RAG_HOME": str(home), "RAG_STRATEGY": given.strategy}
        for library in load_libraries(given.half):
            name = library["name"]
            documents = partial(write_documents, library, home / "documents" / name)
            own = f"small-{name}-{given.strategy}"
            namespaces[name] = answers.publish(documents, own, given.strategy)
            questions |= read_questions(library)
            phrasings |= read_phrasings(library) if given.searches else {}
        results = list(answers.ask_all(questions, namespaces, phrasings))
    if given.results:
        lines = [json.dumps(result, ensure_ascii=False) for result in results]
        given.results.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found: dict[str, Any] = answers.summarize(answers.judge_results(judge, questions, results))
    asked = "with searches" if given.searches else "the question alone"
    print(answers.show(f"{given.strategy}, {given.half or 'both halves'}, {asked}", found))


if __name__ == "__main__":
    main()
