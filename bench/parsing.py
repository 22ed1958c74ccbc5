"""How well and how fast PDFs are parsed, beside other parsers on the same files in the same run.

    python bench/parsing.py [--data FOLDER] [--only truth|tables|speed] [--engines layout fast ...]
    [--files GLOB] [--json]

FOLDER holds `pdf-truth` (index.jsonl, *.truth.*, olmocr-tests.jsonl) and `pdf-tables`
(tables.jsonl); default RAG_TEST_DATA or ../shared/data. The measures and their normalisation, one
for all parsers: parsing_measures.py. Printed for each parser:

    words    F1 of words against the truth, of all the text and (body) without the page headers and
             footers the parser recognised
    order    share of the truth's unique runs of four words that stand in the truth's order
    headings F1 of titles, and of titles with their level
    olmOCR   checks passed, on the body: a text without OCR cannot pass those of scans
    cells    F1 of adjacency relations (ICDAR 2013), mean of documents and pooled
    pages/s  a second of processor time, and of wall time; peak memory of the parser's process

A file that a parser fails on scores 0 and is named, as are pages that ours could only read as raw
text.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from parsing_engines import ENGINES
from parsing_measures import (
    Cell,
    Score,
    cell_text,
    covered,
    heading_scores,
    order_share,
    overlap,
    passes,
    relations,
    tables,
    text_score,
)

HERE = Path(__file__).resolve().parent
Row = dict[str, Any]


def outputs(engines: Sequence[str], files: Sequence[Path]) -> dict[str, dict[str, Row]]:
    """What each parser made of each file: engine to file name to row; a file that a parser died on
    has an `error`.

    The parsers are children that live on from file to file and take each file in turn, so that a
    busy moment of the machine hits all.
    """
    rows: dict[str, dict[str, Row]] = {name: {} for name in engines}
    children = {name: _started(name) for name in engines}
    for path in files:
        for name in engines:
            child = children[name]
            assert child.stdin and child.stdout
            child.stdin.write(f"{path}\n")
            child.stdin.flush()
            if line := child.stdout.readline():
                rows[name][path.name] = json.loads(line)
            else:
                rows[name][path.name] = {
                    "text": "",
                    "body": "",
                    "wall": 0.0,
                    "processor": 0.0,
                    "peak_mb": 0.0,
                    "error": f"the parser died (exit status {child.wait()})",
                }
                children[name] = _started(name)
    for child in children.values():
        child.communicate()
    return rows


def at_once(files: Sequence[Path], profile: str) -> float:
    """Seconds in which the files are read as an ingest reads them: in children under limits, one
    document a core at a time.
    """
    from rag_platform.config.settings import Limits
    from rag_platform.errors import DocumentError
    from rag_platform.intake.isolation import load_isolated, pool
    from rag_platform.loaders.pdf.mupdf import PdfLoader

    def read(path: Path) -> None:
        with contextlib.suppress(DocumentError):  # counted where the parsers are compared
            load_isolated(path, PdfLoader(profile=profile), Limits())  # type: ignore[arg-type]

    cores = pool().size
    with ThreadPoolExecutor(cores) as threads:
        list(threads.map(read, files[:1] * cores))  # starts the children, which load their models
        started = time.perf_counter()
        list(threads.map(read, files[1:] or files))  # as many as speed_figures times
        return time.perf_counter() - started


def _started(engine: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(HERE / "parsing_engines.py"), engine],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def truth_figures(folder: Path, rows: dict[str, Row]) -> Row:
    """Words, order, headings and olmOCR checks of one parser on pdf-truth."""
    files: dict[str, Row] = {}
    without = 0
    for entry in _lines(folder / "index.jsonl"):
        if entry["pdf"] not in rows or entry["kind"] not in ("markdown", "text"):
            continue
        if not entry["truth"]:
            without += 1
            continue
        truth = covered(
            (folder / entry["truth"]).read_text(encoding="utf-8"), _printed(folder / entry["pdf"])
        )
        row = rows[entry["pdf"]]
        titles, levels = heading_scores(row["text"], truth)
        files[entry["pdf"]] = {
            "words": text_score(row["text"], truth).f1,
            "body": text_score(row["body"], truth).f1,
            "order": order_share(row["body"], truth),
            "headings": titles.f1 if titles.expected else None,
            "levels": levels.f1 if levels.expected else None,
            "human_made": entry["human_made"],
        }
    tests = [test for test in _lines(folder / "olmocr-tests.jsonl") if test["pdf"] in rows]
    failed = [
        test["id"]
        for test in tests
        if rows[test["pdf"]]["error"] or not passes(test, rows[test["pdf"]]["body"])
    ]
    return {
        "files": files,
        "without_truth": without,
        "olmocr": len(tests) - len(failed),
        "olmocr_tests": len(tests),
        "olmocr_failed": failed,
        **{
            key: _mean(file[key] for file in files.values())
            for key in ("words", "body", "order", "headings", "levels")
        },
    }


def table_figures(folder: Path, rows: dict[str, Row]) -> Row:
    """Adjacency relations of one parser on pdf-tables; `touching` counts only cells without an
    empty one between them.
    """
    truth: dict[str, list[list[Cell]]] = {}
    lines = _lines(folder / "tables.jsonl")
    # some files were marked twice, as us-011a and us-011b
    first = {table["pdf"]: table["source"] for table in reversed(lines)}
    for table in (table for table in lines if table["source"] == first[table["pdf"]]):
        cells = [
            Cell(c["row"], c["col"], c["end_row"], c["end_col"], cell_text(c["text"]))
            for c in table["cells"]
        ]
        truth.setdefault(table["pdf"], []).append([cell for cell in cells if cell.text])
    found = {name: tables(rows[name]["text"]) for name in truth if name in rows}
    scores, touching = (
        {
            name: overlap(_pooled(cells, strict), _pooled(truth[name], strict))
            for name, cells in found.items()
        }
        for strict in (False, True)
    )
    pooled = sum(scores.values(), Score(0, 0, 0))
    return {
        "files": {
            name: {"f1": s.f1, "found": s.found, "expected": s.expected, "right": s.right}
            for name, s in sorted(scores.items())
        },
        "mean": _mean(score.f1 for score in scores.values()),
        "pooled": pooled.f1,
        "precision": pooled.right / max(1, pooled.found),
        "recall": pooled.right / max(1, pooled.expected),
        "touching": _mean(score.f1 for score in touching.values()),
    }


def _pooled(grids: Sequence[Sequence[Cell]], strict: bool) -> Counter[tuple[str, str, str]]:
    return sum((relations(cells, strict) for cells in grids), Counter())


def speed_figures(rows: dict[str, Row], pages: dict[str, int]) -> Row:
    """Pages a second and memory of one parser over all its files, the first left out: it carries
    the imports and the model's start.
    """
    timed = list(rows.items())[1:] if len(rows) > 1 else list(rows.items())
    total = sum(pages[name] for name, row in timed if not row["error"])
    return {
        "pages": total,
        "processor_seconds": sum(row["processor"] for _, row in timed),
        "pages_per_processor_second": total / max(1e-9, sum(row["processor"] for _, row in timed)),
        "pages_per_second": total / max(1e-9, sum(row["wall"] for _, row in timed)),
        "peak_mb": max(row["peak_mb"] for row in rows.values()),
        "failed": {name: row["error"] for name, row in rows.items() if row["error"]},
        "notes": {name: row["notes"] for name, row in rows.items() if row.get("notes")},
    }


def _printed(path: Path) -> str:
    import pymupdf

    with pymupdf.open(path) as document:
        return "\n".join(page.get_text() for page in document)


def _lines(path: Path) -> list[Row]:
    return [
        json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
    ]


def _mean(values: Any) -> float | None:
    kept = [value for value in values if value is not None]
    return statistics.fmean(kept) if kept else None


def _page_counts(files: Sequence[Path]) -> dict[str, int]:
    import pymupdf

    counts = {}
    for path in files:
        with pymupdf.open(path) as document:
            counts[path.name] = int(document.page_count)
    return counts


# --- printing -----------------------------------------------------------------------------------


def _shown(value: Any) -> str:
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    cells = [list(head), *([_shown(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for row in cells:
        print(
            "  ".join(
                text.ljust(width) if i == 0 else text.rjust(width)
                for i, (text, width) in enumerate(zip(row, widths, strict=True))
            )
        )
    print()


def _report(result: Row, only: str | None) -> None:
    engines = list(result)
    if only in (None, "truth"):
        without = result[engines[0]]["truth"]["without_truth"]
        print(
            "pdf-truth: means of files"
            + (f" ({without} without a truth left out)" if without else "")
        )
        keys = ("words", "body", "order", "headings", "levels")
        _table(
            ["parser", *keys, "olmOCR"],
            [
                [
                    name,
                    *(result[name]["truth"][key] for key in keys),
                    f"{result[name]['truth']['olmocr']}/{result[name]['truth']['olmocr_tests']}",
                ]
                for name in engines
            ],
        )
        for key in ("words", "body", "order", "headings"):
            print(f"{key} by file")
            names = list(result[engines[0]]["truth"]["files"])
            _table(
                ["file", *engines],
                [
                    [name, *(result[engine]["truth"]["files"][name][key] for engine in engines)]
                    for name in names
                ],
            )
        for name in engines:
            print(
                f"olmOCR not passed by {name}: {', '.join(result[name]['truth']['olmocr_failed'])}"
            )
        print()
    if only in (None, "tables"):
        print("pdf-tables: F1 of adjacency relations")
        keys = ("mean", "pooled", "precision", "recall", "touching")
        _table(
            ["parser", *keys],
            [[name, *(result[name]["tables"][key] for key in keys)] for name in engines],
        )
        names = list(result[engines[0]]["tables"]["files"])
        _table(
            ["file", "relations", *engines],
            [
                [
                    name,
                    result[engines[0]]["tables"]["files"][name]["expected"],
                    *(result[engine]["tables"]["files"][name]["f1"] for engine in engines),
                ]
                for name in names
            ],
        )
    print("speed over all these files")
    keys = ("pages", "pages_per_processor_second", "pages_per_second", "peak_mb")
    _table(
        ["parser", *keys],
        [[name, *(result[name]["speed"][key] for key in keys)] for name in engines],
    )
    if {"layout", "pymupdf4llm"} <= result.keys():
        ours, alone = (
            result[name]["speed"]["processor_seconds"] for name in ("layout", "pymupdf4llm")
        )
        print(f"layout takes {ours / alone:.2f} of the processor time of the layout parser alone\n")
    for name in engines:
        if (faster := result[name]["speed"].get("at_once")) is not None:
            print(
                f"{name} in the children of an ingest: {faster:.2f} times the pages a second (wall)"
                " of one process\n"
            )
    for name in engines:
        for file, error in result[name]["speed"]["failed"].items():
            print(f"{name} failed on {file}: {error}")
        for file, notes in result[name]["speed"]["notes"].items():
            print(
                f"{name} on {file}: {notes[0]}"
                + (f" and {len(notes) - 1} more" if len(notes) > 1 else "")
            )


def main() -> None:
    """Run the parsers and print what they made of the files."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(os.environ.get("RAG_TEST_DATA") or HERE.parent.parent / "shared" / "data"),
    )
    parser.add_argument("--only", choices=("truth", "tables", "speed"))
    parser.add_argument(
        "--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES), metavar="NAME"
    )
    parser.add_argument("--files", default="*", help="glob over file names")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--keep", type=Path, help="folder in which to write what each parser made of each file"
    )
    args = parser.parse_args()
    folders = [
        args.data / name
        for name in ("pdf-truth", "pdf-tables")
        if args.only not in ("truth", "tables") or name.endswith(args.only)
    ]
    if missing := [str(folder) for folder in folders if not folder.is_dir()]:
        raise SystemExit(
            f"no such folder: {', '.join(missing)}; name the material with --data or RAG_TEST_DATA"
        )
    files = [
        path
        for folder in folders
        for path in sorted(folder.glob("*.pdf"))
        if fnmatch.fnmatch(path.name, args.files)
    ]
    if not files:
        raise SystemExit(f"no PDF in {', '.join(map(str, folders))} matches {args.files!r}")
    pages = _page_counts(files)
    for name in [
        name
        for name in args.engines
        if name not in ("layout", "fast") and importlib.util.find_spec(name) is None
    ]:
        package = "markitdown[pdf]" if name == "markitdown" else name
        print(f"left out: {name} is not installed (pip install '{package}')", file=sys.stderr)
        args.engines.remove(name)
    result: Row = {}
    for name, rows in outputs(args.engines, files).items():
        result[name] = {"speed": speed_figures(rows, pages)}
        if name in ("layout", "fast") and args.only in (None, "speed"):
            speed = result[name]["speed"]
            speed["at_once"] = speed["pages"] / at_once(files, name) / speed["pages_per_second"]
        if args.only in (None, "truth"):
            result[name]["truth"] = truth_figures(args.data / "pdf-truth", rows)
        if args.only in (None, "tables"):
            result[name]["tables"] = table_figures(args.data / "pdf-tables", rows)
        if args.keep:
            (args.keep / name).mkdir(parents=True, exist_ok=True)
            for file, row in rows.items():
                (args.keep / name / f"{file}.md").write_text(row["text"], encoding="utf-8")
    if args.json:
        print(json.dumps(result, ensure_ascii=False, indent=1))
    else:
        _report(result, args.only)


if __name__ == "__main__":
    main()
