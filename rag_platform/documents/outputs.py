"""The stored outputs of a version's stages: their paths, and the outputs read back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rag_platform.errors import IntegrityError
from rag_platform.ir import (
    Block,
    Chunk,
    Edit,
    Facts,
    MediaLink,
    MediaRef,
    MediaText,
    ParseSummary,
    Section,
    Version,
    View,
)
from rag_platform.storage.records import REINGEST_REMEDY
from rag_platform.storage.store import Store, read_record, read_records

if TYPE_CHECKING:  # late, as readers start without what makes facts
    from rag_platform.normalisation.edits import Normalised

# records that another stage stores than the one of their name
_STAGES = {"edits": "sections", "kept": "chunks"}


class Outputs:
    """The stored outputs of a version under the profiles of its stages, each read on first use.
    Chunks and views are those as they were cut, not those of an edition.
    """

    def __init__(self, version: Version, store: Store, profiles: Mapping[str, str]) -> None:
        self.version, self.store, self.profiles = version, store, profiles

    def path(self, kind: str, edition: str = "") -> Path:
        """The Parquet file of one kind of record, of an edition if `edition` names one."""
        profile = self.profiles[_STAGES.get(kind, kind)]
        return self.store.version_path(self.version, kind, profile, edition)

    @property
    def facts_folder(self) -> Path:
        """The folder with the facts."""
        return self.store.facts_dir(self.version, self.profiles["facts"])

    @property
    def summary_path(self) -> Path:
        """The last file of the facts, whose presence marks them complete."""
        return self.facts_folder / "summary.json"

    @cached_property
    def facts(self) -> Facts:
        """The facts of the version's bytes. Raises IntegrityError if the text was changed."""
        text = (self.facts_folder / "facts.md").read_bytes()
        summary = read_record(self.summary_path, ParseSummary)
        if (found := hashlib.sha256(text).hexdigest()) != summary.md_sha256:
            raise IntegrityError(
                f"facts of {self.version.version_id} have hash {found[:12]}, recorded"
                f" {summary.md_sha256[:12]}; {REINGEST_REMEDY}"
            )
        return Facts(
            text=text.decode("utf-8"),
            blocks=tuple(read_records(self.facts_folder / "blocks.parquet", Block)),
            media=tuple(read_records(self.facts_folder / "media.parquet", MediaRef)),
            summary=summary,
        )

    @cached_property
    def summary(self) -> ParseSummary:
        """The loader's summary of the file."""
        return self.facts.summary

    @cached_property
    def title(self) -> str:
        """The document title found in the file."""
        from rag_platform.documents.metadata import document_title

        return document_title(self.facts, self.version.filename, self.version.source_uri)

    @cached_property
    def links(self) -> list[MediaLink]:
        """The document's images, each with its stored asset or the reason why it has none."""
        return read_records(self.path("media"), MediaLink)

    @cached_property
    def media_texts(self) -> list[MediaText]:
        """The OCR texts and captions of images; empty where the strategy wants none."""
        path = self.path("media_texts")
        return read_records(path, MediaText) if path.is_file() else []

    @cached_property
    def edits(self) -> list[Edit]:
        """The edits of normalisation."""
        return read_records(self.path("edits"), Edit)

    @cached_property
    def normalised(self) -> Normalised:
        """The facts after the recorded edits."""
        from rag_platform.normalisation.edits import apply_edits

        return apply_edits(self.facts.text, self.edits)

    @cached_property
    def sections(self) -> list[Section]:
        """The structural units."""
        return read_records(self.path("sections"), Section)

    @cached_property
    def chunks(self) -> list[Chunk]:
        """The retrieval units."""
        return read_records(self.path("chunks"), Chunk)

    @cached_property
    def views(self) -> list[View]:
        """The retrieval texts."""
        return read_records(self.path("views"), View)
