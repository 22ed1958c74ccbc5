"""Forges a library in one place at a time and asks `rag verify --all` each time: whatever a
citation shows must not change unseen.

    python bench/mutations.py [--count 500] [--seed 1] [--show 20] [--alone]

The library is small and of every format: Markdown, text, PDF, HTML, Word, CSV, Excel. A mutation
changes one value of the catalog (one more, one less, that of another row, torn, reversed or swapped
words, one letter), takes a row away or adds one, or flips, cuts and replaces bytes of a raw file,
of facts, blocks, edits, sections, chunks, views, or of an index. The manifest is signed anew after
each, so that hashes of the release's files tell nothing; with `--alone` those are counted too that
are found although the fingerprints of outputs and documents are missing, as in a release of an
older program. Exit code 1 when a mutation was not found, or the sound library is called unsound.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import logging
import random
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent))
from small_library import NAMESPACE, Place, picture, write_config

from rag_platform.errors import RagError
from rag_platform.indexes.catalog_tables import TABLES, column_names
from rag_platform.releases import release_store as releases
from rag_platform.releases.proofs.verification import Verification, verify_release
from rag_platform.storage.store import sha256_file

LOADERS = ("pdf", "html", "docx", "xlsx", "csv", "markdown", "text")

PORTS = """\
---
title: Port guide
---

# Ports

The gateway listens on port 8080 unless the option PORT-9087 is set.
The north gate opens at half past five and closes at ten.

## Limits

| tier | requests per minute |
| --- | --- |
| free | 60 |
| pro | 600 |

![diagram](diagram.png)

Whoever asks more often is refused for one minute.
"""
HOLIDAYS = (
    "# 休假制度\r\n"
    "\r\n"
    "员工每年有十五天年假，提前三天申请。\r\n"
    "\r\n"
    "## 病假\r\n"
    "\r\n"
    "病假需要医生证明，超过三天由部门经理批准。\r\n"
)
NOTES = (
    "Release notes\n"
    "\n"
    "Version 2.4.1 fixes the crash on start and adds the option max_retry_count.\n"
    "It runs on Linux and on macOS.\n"
)
PAGE = """\
<!doctype html><html><head><title>Valve manual</title></head><body><main><h1>Valve manual</h1>
<p>The relief valve opens at <b>six bar</b> and is tested every second year by the supplier.</p>
<h2>Spare parts</h2><table><tr><th>Part</th><th>Number</th></tr><tr><td>Spring of \
steel</td><td>V-100</td></tr>
<tr><td>Seal of rubber</td><td>V-200</td></tr></table><ul><li>Order springs early.</li><li>Keep \
seals dry.</li></ul></main></body></html>
"""


def write_documents(folder: Path) -> None:
    """One document of every format, two of Markdown."""
    import docx
    import openpyxl
    import pymupdf

    folder.mkdir()
    (folder / "ports.md").write_text(PORTS, encoding="utf-8")
    (folder / "休假.md").write_bytes(HOLIDAYS.encode())
    (folder / "notes.txt").write_text(NOTES, encoding="utf-8")
    (folder / "valve.html").write_text(PAGE, encoding="utf-8")
    (folder / "staff.csv").write_text(
        "name,city,desk\nAnna Berg,Rome,12\nCarl Dorn,Bonn,14\nEva Falk,Oslo,16\n", encoding="utf-8"
    )
    (folder / "diagram.png").write_bytes(picture("red"))
    made = docx.Document()
    made.add_heading("Travel rules", 1)
    made.add_paragraph("Employees book trains through the travel desk two weeks ahead.")
    made.add_heading("Hotels", 2)
    made.add_paragraph("A night may cost up to ninety euros without further approval.")
    made.add_picture(io.BytesIO(picture("blue")))
    table = made.add_table(2, 2)
    for cell, text in zip(
        [cell for row in table.rows for cell in row.cells],
        ("city", "limit", "Paris", "one hundred"),
        strict=True,
    ):
        cell.text = text
    made.save(str(folder / "travel.docx"))
    book = openpyxl.Workbook()
    book.active.title = "Sales"
    for line in (
        ["region", "manager", "units"],
        ["north coast", "Gina Hart", 120],
        ["south hills", "Ivan Joss", 340],
    ):
        book.active.append(line)
    book.save(folder / "sales.xlsx")
    file = pymupdf.open()
    for title, text in (
        (
            "Pump PX-40",
            (
                "The pump moves forty litres of water per minute. It must not run dry for longer"
                " than ten seconds."
            ),
        ),
        (
            "Service",
            (
                "Change the seals after two thousand hours. The supplier keeps spare parts for"
                " fifteen years."
            ),
        ),
    ):
        page = file.new_page()
        page.insert_text((72, 90), title, fontsize=22)
        page.insert_textbox((72, 120, 500, 300), text, fontsize=11)
    file.save(folder / "pump.pdf")


def make_library(folder: Path) -> Place:
    """The published library, in force for this process."""
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder / "config")
    strategy = folder / "config" / "strategies" / "small.yaml"
    loaders = ", ".join(f"{{provider: {name}}}" for name in LOADERS)
    text = strategy.read_text(encoding="utf-8")
    strategy.write_text(
        text.replace("{provider: markdown}, {provider: text}", loaders), encoding="utf-8"
    )
    write_documents(folder / "docs")
    place = Place(folder, folder / "home").enter()
    place.home.mkdir()
    place.update()
    return place


# --- mutations ----------------------------------------------------------------------------------


@dataclass
class Forger:
    """Changes a library in one place, and puts it back."""

    place: Place
    random: random.Random
    kept: dict[Path, bytes] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        """The published release."""
        store = self.place.store
        return store.release_dir(NAMESPACE, releases.current(store, NAMESPACE) or "")

    def keep(self, path: Path) -> Path:
        """The path, whose bytes are put back afterwards."""
        self.kept.setdefault(path, path.read_bytes())
        return path

    def restore(self) -> None:
        """Everything as it was."""
        for path, data in self.kept.items():
            path.write_bytes(data)
        self.kept.clear()
        self.record()

    def sign(self, *, fingerprints: bool = True) -> None:
        """The hashes of the release's files and of its manifest made to fit; without fingerprints
        what else the manifest knows of rows is dropped.
        """
        path = self.keep(self.directory / "manifest.json")
        manifest = json.loads(path.read_bytes())
        manifest["files"] = {name: sha256_file(self.directory / name) for name in manifest["files"]}
        if not fingerprints:
            manifest |= {"outputs": {}, "given": {}}
        path.write_text(json.dumps(manifest), encoding="utf-8")
        self.record()

    def record(self) -> None:
        """Make the ledger's hash of the manifest fit as well."""
        with closing(sqlite3.connect(self.place.store.ledger_path)) as db, db:
            db.execute(
                "UPDATE releases SET manifest_sha256 = ? WHERE release_id = ?",
                (sha256_file(self.directory / "manifest.json"), self.directory.name),
            )

    @contextmanager
    def catalog(self) -> Iterator[sqlite3.Connection]:
        """The catalog, open for writing."""
        with closing(sqlite3.connect(self.keep(self.directory / "catalog.sqlite"))) as db, db:
            yield db

    def pick(self, items: list[Any]) -> Any:
        """One of the items."""
        return self.random.choice(items)


class Unchanged(Exception):
    """The mutation would have changed nothing."""


Mutation = tuple[str, Callable[[Forger], str]]  # kind, and what changes the library and says where


def all_mutations() -> list[Mutation]:
    """Every kind of mutation; each column of the catalog is one of its own."""
    found: list[Mutation] = [
        (f"catalog.{table}.{column}", _column(table, column))
        for table in TABLES
        for column in column_names(table)
    ]
    found += [
        (f"catalog.{table}: row {what}", _row(table, what))
        for table in TABLES
        for what in ("deleted", "doubled", "swapped")
    ]
    found += [
        (f"raw: {what}", _raw(what)) for what in ("byte", "letter", "cut", "longer", "replaced")
    ]
    found += [(f"facts.md: {what}", _facts(what)) for what in ("letter", "swapped", "torn")]
    for kind in ("blocks", "edits", "sections", "chunks", "media", "views"):
        found += [
            (f"{kind}.parquet: {what}", _parquet(kind, what))
            for what in ("value", "row deleted", "row doubled", "gone")
        ]
    found += [
        (f"blocks.parquet: box {what}", _box(what)) for what in ("stretched", "moved", "grown")
    ]
    found += [("summary.json", _summary), ("index file", _index)]
    return found


def forged(value: Any, others: list[Any], chosen: random.Random) -> Any:
    """Another value of the same kind. Raises Unchanged where there is none."""
    options: list[Any] = [other for other in others if other != value and other is not None]
    if isinstance(value, bool):
        options = [not value]
    elif isinstance(value, int | float):
        options += [value + 1, value - 1, value + 7]
    elif isinstance(value, str):
        words = value.split(" ")
        options += [
            value[::-1],
            value + "x",
            value[1:],
            " ".join(words[::-1]),
            value[: len(value) // 2] + " " + value[len(value) // 2 :],
        ]
        options += [f"{value[: len(value) // 2]}q{value[len(value) // 2 + 1 :]}"]
        at = chosen.randrange(max(1, len(words) - 1))
        options += [" ".join([*words[:at], *words[at : at + 2][::-1], *words[at + 2 :]])]
    else:
        options += [7, "x"]
    options = [option for option in options if option != value]
    if not options:
        raise Unchanged
    return chosen.choice(options)


def _column(table: str, column: str) -> Callable[[Forger], str]:
    def change(forger: Forger) -> str:
        with forger.catalog() as db:
            rows = db.execute(f'SELECT rowid, "{column}" FROM {table}').fetchall()
            if not rows:
                raise Unchanged
            rowid, value = forger.pick(rows)
            new = forged(value, [row[1] for row in rows], forger.random)
            try:
                db.execute(f'UPDATE {table} SET "{column}" = ? WHERE rowid = ?', (new, rowid))
            except sqlite3.IntegrityError as error:
                raise Unchanged from error
        return f"{str(value)[:40]!r} -> {str(new)[:40]!r}"

    return change


def _row(table: str, what: str) -> Callable[[Forger], str]:
    def change(forger: Forger) -> str:
        with forger.catalog() as db:
            names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            rows = db.execute(f"SELECT rowid, * FROM {table}").fetchall()
            if not rows or (what == "swapped" and len(rows) < 2):
                raise Unchanged
            row = forger.pick(rows)
            if what == "deleted":
                db.execute(f"DELETE FROM {table} WHERE rowid = ?", (row[0],))
            elif what == "doubled":
                values = list(row[1:])
                if table in ("documents", "versions", "chunks", "asset"):  # whose id is unique
                    values[
                        names.index(
                            {
                                "documents": "doc_id",
                                "versions": "version_id",
                                "chunks": "chunk_id",
                                "asset": "asset_id",
                            }[table]
                        )
                    ] += "0"
                db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
            else:
                column = forger.pick(
                    [name for name in names if len({r[1 + names.index(name)] for r in rows}) > 1]
                )
                at = 1 + names.index(column)
                other = forger.pick([r for r in rows if r[at] != row[at]])
                try:
                    db.execute(
                        f'UPDATE {table} SET "{column}" = ? WHERE rowid = ?',
                        (f"{other[at]}~", row[0]),
                    )
                    db.execute(
                        f'UPDATE {table} SET "{column}" = ? WHERE rowid = ?', (row[at], other[0])
                    )
                    db.execute(
                        f'UPDATE {table} SET "{column}" = ? WHERE rowid = ?', (other[at], row[0])
                    )
                except sqlite3.IntegrityError as error:
                    raise Unchanged from error
                return f"{column} of rows {row[0]} and {other[0]}"
        return f"row {row[0]}"

    return change


def _raw(what: str) -> Callable[[Forger], str]:
    def change(forger: Forger) -> str:
        files = sorted(
            path for path in forger.place.store.area("raw").glob("*/*") if path.is_file()
        )
        path = forger.keep(forger.pick(files))
        data = bytearray(path.read_bytes())
        with forger.catalog() as db:
            sql = (
                "SELECT byte_start, byte_end FROM chunks JOIN versions USING (version_id) WHERE"
                " file_sha256 = ? AND byte_end > byte_start"
            )
            ranges = db.execute(sql, (path.name,)).fetchall() or [(0, len(data))]
        start, end = forger.pick(ranges)
        at = forger.random.randrange(start, end)
        if what == "byte":
            data[at] ^= 1 << forger.random.randrange(8)
        elif what == "letter":
            data[at] = ord("q") if data[at] != ord("q") else ord("z")
        elif what == "cut":
            del data[at:]
        elif what == "longer":
            data += b"\n"
        else:
            data = bytearray(forger.pick([other for other in files if other != path]).read_bytes())
        path.write_bytes(data)
        return f"{path.name[:12]} at {at}"

    return change


def _facts(what: str) -> Callable[[Forger], str]:
    """The facts and their recorded hash, so that only the proof against the bytes can tell."""

    def change(forger: Forger) -> str:
        path = forger.keep(forger.pick(sorted(forger.place.store.area("facts").rglob("facts.md"))))
        text = path.read_bytes().decode()
        places = [i for i in range(len(text) - 1) if text[i].isalpha()]
        at = forger.pick(places)
        if what == "letter":
            new = text[:at] + ("q" if text[at] != "q" else "z") + text[at + 1 :]
        elif what == "torn":
            new = text[:at] + " " + text[at + 1 :]
        else:
            words = [
                i
                for i in range(1, len(text))
                if text[i].isalpha() and text[i - 1].isalpha() and text[i] != text[i - 1]
            ]
            if not words:
                raise Unchanged
            at = forger.pick(words)
            new = text[: at - 1] + text[at] + text[at - 1] + text[at + 1 :]
        path.write_bytes(new.encode())
        summary = forger.keep(path.with_name("summary.json"))
        told = json.loads(summary.read_bytes())
        summary.write_text(
            json.dumps({**told, "md_sha256": hashlib.sha256(new.encode()).hexdigest()}),
            encoding="utf-8",
        )
        return f"{text[max(0, at - 8) : at + 8]!r}"

    return change


def _parquet(kind: str, what: str) -> Callable[[Forger], str]:
    def change(forger: Forger) -> str:
        store = forger.place.store
        files = sorted(
            store.area("facts").rglob("blocks.parquet")
            if kind == "blocks"
            else store.area("versions").glob(f"*/*/*/{kind}/*.parquet")
        )
        files = [path for path in files if pq.read_metadata(path).num_rows]
        if not files:
            raise Unchanged
        path = forger.keep(forger.pick(files))
        if what == "gone":
            path.unlink()
            return path.name
        table = pq.read_table(path)
        rows = table.to_pylist()
        at = forger.random.randrange(len(rows))
        said = f"row {at}"
        if what == "row deleted":
            del rows[at]
        elif what == "row doubled":
            rows.insert(at, rows[at])
        else:
            for _ in range(20):
                column = forger.pick(table.column_names)
                value = rows[at][column]
                try:
                    new = forged(value, [row[column] for row in rows], forger.random)
                    pa.array([new], table.schema.field(column).type)
                except (Unchanged, pa.ArrowException, TypeError):
                    continue
                rows[at][column] = new
                said = f"{column} {str(value)[:30]!r} -> {str(new)[:30]!r}"
                break
            else:
                raise Unchanged
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
        return said

    return change


def _box(what: str) -> Callable[[Forger], str]:
    """The rectangle of a block of a PDF as large as its page, moved by a third of it, or larger by
    10 points on each side.
    """

    def change(forger: Forger) -> str:
        files = sorted(forger.place.store.area("facts").rglob("blocks.parquet"))
        tables = {path: pq.read_table(path) for path in files}
        placed = [
            (path, at)
            for path, table in tables.items()
            for at, box in enumerate(table["bbox"].to_pylist())
            if box
        ]
        path, at = forger.pick(placed)
        forger.keep(path)
        rows = tables[path].to_pylist()
        x0, y0, x1, y1 = rows[at]["bbox"]
        rows[at]["bbox"] = {
            "stretched": [0.0, 0.0, 595.0, 842.0],
            "moved": [x0 + 198.0, y0 + 280.0, x1 + 198.0, y1 + 280.0],
            "grown": [x0 - 10.0, y0 - 10.0, x1 + 10.0, y1 + 10.0],
        }[what]
        pq.write_table(pa.Table.from_pylist(rows, schema=tables[path].schema), path)
        return f"row {at}"

    return change


def _summary(forger: Forger) -> str:
    path = forger.keep(forger.pick(sorted(forger.place.store.area("facts").rglob("summary.json"))))
    told = json.loads(path.read_bytes())
    name = forger.pick(["md_sha256", "text_chars", "pages", "title", "loader_version"])
    path.write_text(
        json.dumps({**told, name: forged(told[name], [], forger.random)}), encoding="utf-8"
    )
    return name


def _index(forger: Forger) -> str:
    names = [
        name
        for name in json.loads((forger.directory / "manifest.json").read_bytes())["files"]
        if name != "catalog.sqlite"
    ]
    path = forger.keep(forger.directory / forger.pick(names))
    data = bytearray(path.read_bytes())
    if not data:
        raise Unchanged
    data[forger.random.randrange(len(data))] ^= 1
    path.write_bytes(data)
    return path.name


# --- the run ------------------------------------------------------------------------------------


@dataclass
class Result:
    """What came of the mutations."""

    made: int = 0
    missed: list[str] = field(default_factory=list)
    alone_made: int = 0
    alone_missed: list[str] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)


def verified(place: Place) -> tuple[str, Verification | None]:
    """(code of the first thing that is not proved or empty, the verification); an error that ends
    the command is one too.
    """
    try:
        result = verify_release(place.store, NAMESPACE, limits=place.settings.limits)
    except RagError as error:
        return error.code, None
    return (result.failures[0].reason.partition(":")[0] if result.failures else ""), result


def run(place: Place, count: int, seed: int, *, alone: bool = True, every: int = 1) -> Result:
    """Make `count` mutations, each kind in turn or one of every `every`, and verify after each."""
    forger = Forger(place, random.Random(seed))
    kinds = all_mutations()
    result = Result()
    turn = 0
    while result.made < count:
        name, change = kinds[turn % len(kinds)]
        turn += every
        try:
            said = change(forger)
        except Unchanged:
            forger.restore()
            continue
        result.made += 1
        signed = name != "index file"
        if signed:
            forger.sign()
        code, _ = verified(place)
        result.codes[code] += 1
        if not code:
            result.missed.append(f"{name}: {said}")
        if alone and signed:
            forger.sign(fingerprints=False)
            result.alone_made += 1
            if not verified(place)[0]:
                result.alone_missed.append(f"{name}: {said}")
        forger.restore()
    return result


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=20)
    parser.add_argument(
        "--alone",
        action="store_true",
        help="verify each a second time without the fingerprints of the manifest",
    )
    arguments = parser.parse_args()
    logging.disable()  # of what a forged row raises the stack trace is logged
    with tempfile.TemporaryDirectory() as folder:
        place = make_library(Path(folder) / "library")
        code, sound = verified(place)
        assert sound is not None, code
        print(
            f"sound library: {sound.checked} chunks, {len(sound.failures)} not proved, warnings:"
            f" {list(sound.warnings)}"
        )
        for failure in sound.failures:
            print(f"  {failure.source_uri} {failure.chunk_id}: {failure.reason}")
        started = time.perf_counter()
        result = run(place, arguments.count, arguments.seed, alone=arguments.alone)
    print(
        f"{result.made - len(result.missed)} of {result.made} mutations found in"
        f" {time.perf_counter() - started:.0f} s"
    )
    if arguments.alone:
        print(
            "without fingerprints, as in older releases:"
            f" {result.alone_made - len(result.alone_missed)} of {result.alone_made}"
        )
    print(
        "by code: "
        + ", ".join(f"{code or 'none'} {count}" for code, count in result.codes.most_common())
    )
    for title, missed in (
        ("not found", result.missed),
        ("not found without fingerprints", result.alone_missed),
    ):
        for line in missed[: arguments.show]:
            print(f"{title}: {line}")
    return 1 if result.missed or sound.failures else 0


if __name__ == "__main__":
    sys.exit(main())
