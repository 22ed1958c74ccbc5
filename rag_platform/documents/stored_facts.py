"""Reads stored facts, without importing the code that makes them."""

from __future__ import annotations

import hashlib

from rag_platform.errors import IntegrityError
from rag_platform.ir import Block, Facts, MediaRef, ParseSummary, Version
from rag_platform.storage.records import REINGEST_REMEDY
from rag_platform.storage.store import Store, read_record, read_records


def load_facts(store: Store, version: Version, profile: str) -> Facts:
    """The stored facts of a version's bytes. Raises IntegrityError if the text was changed."""
    folder = store.facts_dir(version, profile)
    text = (folder / "facts.md").read_bytes()
    summary = read_record(folder / "summary.json", ParseSummary)
    if (found := hashlib.sha256(text).hexdigest()) != summary.md_sha256:
        raise IntegrityError(
            f"facts of {version.version_id} have hash {found[:12]}, recorded"
            f" {summary.md_sha256[:12]}; {REINGEST_REMEDY}"
        )
    return Facts(
        text=text.decode("utf-8"),
        blocks=tuple(read_records(folder / "blocks.parquet", Block)),
        media=tuple(read_records(folder / "media.parquet", MediaRef)),
        summary=summary,
    )
