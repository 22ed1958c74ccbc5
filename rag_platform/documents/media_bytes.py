"""Where the bytes of an image are: beside the document, inside it, in the reference itself, or on the network where that is allowed."""

from __future__ import annotations

import base64
import binascii
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, unquote_to_bytes, urljoin

from rag_platform.config import FetchLimits, MediaConfig
from rag_platform.documents.pictures import Missing
from rag_platform.errors import DocumentError, FetchError
from rag_platform.ir import MediaRef
from rag_platform.loaders.damage import damage

_WEB = ("http:", "https:", "//")


@dataclass(frozen=True)
class Finder:
    """How references of one document become bytes.

    Relative paths are looked up from `base_dir` and must lie inside `root` after links are followed; a document that came from a URL has
    `base_url` instead. `extracted` maps references into a PDF to a file or to the reason why there is none.
    """

    raw_path: Path
    config: MediaConfig
    base_dir: Path | None = None
    root: Path | None = None
    base_url: str = ""
    fetching: FetchLimits = field(default_factory=FetchLimits)
    extracted: Mapping[str, Path | str] = field(default_factory=dict)

    def bytes_of(self, ref: MediaRef) -> bytes:
        """The bytes behind a reference, at least one and at most config.max_bytes. Raises Missing with the reason."""
        data = self._found(ref)
        if not data:
            raise Missing("empty_file")
        if len(data) > self.config.max_bytes:
            raise Missing("too_large")
        return data

    def _found(self, ref: MediaRef) -> bytes:
        target = ref.origin_ref.strip()
        lowered = target.lower()
        if ref.origin_ref in self.extracted:
            found = self.extracted[ref.origin_ref]
            if isinstance(found, str):
                raise Missing(found)
            return self._read(found)
        if ref.source_type == "image":
            return self._read(self.raw_path)
        if ref.source_type in ("docx", "pptx", "epub") and lowered.startswith(("docx:", "part:")):
            return self._member(target[len("part:") :])
        if lowered.startswith("data:"):
            return self._data_uri(target)
        if lowered.startswith(_WEB):
            return self._fetched(urljoin(self.base_url or "https:", target))
        if ":" in target.split("/")[0] and not (len(target) > 1 and target[1] == ":"):
            raise Missing("scheme_not_allowed")
        if self.base_url:
            return self._fetched(urljoin(self.base_url, target))
        return self._local(target)

    def _read(self, path: Path) -> bytes:
        if path.stat().st_size > self.config.max_bytes:
            raise Missing("too_large")
        return path.read_bytes()

    def _fetched(self, url: str) -> bytes:
        if not self.config.fetch_remote:
            raise Missing("remote_not_fetched")
        from rag_platform.fetching import fetch

        try:
            return fetch(url, self.fetching, max_bytes=self.config.max_bytes).data
        except FetchError as error:
            raise Missing(f"fetch_failed: {error.code}") from error

    def _member(self, name: str) -> bytes:
        """A part of the ZIP that the document is; nothing is unpacked to a path."""
        from rag_platform.loaders.archives import require_small_directory

        try:
            require_small_directory(self.raw_path)
            with zipfile.ZipFile(self.raw_path) as archive, archive.open(name) as member:
                return member.read(self.config.max_bytes + 1)
        except KeyError:
            raise Missing("not_found") from None
        except DocumentError as error:
            raise Missing(error.code) from error
        except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, EOFError, NotImplementedError) as error:
            raise Missing(f"broken_archive: {damage(error)}") from error

    def _data_uri(self, target: str) -> bytes:
        head, comma, body = target[5:].partition(",")
        if not comma:
            raise Missing("broken_data_uri")
        if len(body) > 3 * self.config.max_bytes:
            raise Missing("too_large")
        raw = unquote_to_bytes(body)
        if not head.lower().endswith(";base64"):
            return raw
        try:
            return base64.b64decode(b"".join(raw.split()), validate=True)
        except (binascii.Error, ValueError):
            raise Missing("broken_data_uri") from None

    def _local(self, target: str) -> bytes:
        """The bytes of a file inside the root; every link is followed before the place is judged."""
        if self.base_dir is None or self.root is None:
            raise Missing("no_base_folder")
        if "\x00" in target or PurePosixPath(target).is_absolute() or "\\" in target[:2] or (len(target) > 1 and target[1] == ":"):
            raise Missing("outside_root")
        allowed = self.root.resolve()
        for name in dict.fromkeys((target, unquote(target), unquote(target.split("#")[0].split("?")[0]))):
            try:
                path = (self.base_dir / name).resolve()
                if not path.is_relative_to(allowed):
                    raise Missing("outside_root")
                if path.is_file():
                    return self._read(path)
            except (OSError, ValueError, RuntimeError):
                continue
        raise Missing("not_found")
