"""Erases the text of a document from the logs and from the trace store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rag_platform.observability import redaction
from rag_platform.observability.trace_store.parts import (
    Part,
    changing,
    new_part,
    read_lines,
    read_manifest,
    remove_unnamed,
    replace_parts,
    traces_dir,
    write_manifest,
)
from rag_platform.observability.trace_store.rows import LINE_TABLES, Rows

_BATCH_LINES = 20_000


def erase(logs_dir: Path, names: redaction.Names) -> int:
    """Rewrite the lines that quote the document, in the logs and in the trace store, and return
    their number. Raises BusyError, StorageError `read_only`.
    """
    folder = traces_dir(logs_dir)
    # no compaction between erasing the logs and the store
    with changing(folder, "erasing a deleted document"):
        erased = redaction.erase(logs_dir, names, also=_list_parts(folder))
        # the replaced parts still contain the text
        remove_unnamed(folder, read_manifest(folder), seconds=0)
        return erased


def quoting(logs_dir: Path, names: redaction.Names) -> int:
    """The number of lines in the logs and the trace store that quote the document."""
    return redaction.quoting(logs_dir, names, also=_list_parts(traces_dir(logs_dir)))


def _list_parts(folder: Path) -> list[_PartLines]:
    return [_PartLines(folder, part) for part in read_manifest(folder).parts]


@dataclass(frozen=True, slots=True)
class _PartLines:
    """The lines of one part of the store, table after table."""

    folder: Path
    part: Part
    structured: bool = True

    def lines(self) -> Iterator[tuple[int, bytes]]:
        lines = (
            line for table in LINE_TABLES for line in read_lines(self.folder, self.part, table)
        )
        return enumerate(lines)

    def rewrite(self, changes: list[tuple[int, bytes]]) -> int:
        """Rewrite the part with changed lines; returns their number. The caller holds the store's
        lock.
        """
        if not changes:
            return 0
        replacements = dict(changes)
        with new_part(self.folder) as writer:
            rows = Rows()
            for number, line in self.lines():
                rows.add(replacements.get(number, line), pid=0)
                if len(rows) >= _BATCH_LINES:
                    writer.add(rows.tables())
                    rows = Rows()
            writer.add(rows.tables())
            made = writer.finish()
        write_manifest(self.folder, replace_parts(read_manifest(self.folder), [self.part], made))
        return len(changes)
