"""ZIP containers are judged by their directory, before anything is unpacked."""

from __future__ import annotations

import errno
import struct
import zipfile
from pathlib import Path

import pytest

from rag_platform.errors import DocumentError
from rag_platform.loaders.archives import reject_damaged, require_sane, zip_kind


def archive(folder: Path, **parts: bytes) -> Path:
    path = folder / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in parts.items():
            made.writestr(name, data)
    return path


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ({"[Content_Types].xml": b"", "word/document.xml": b""}, ".docx"),
        ({"[Content_Types].xml": b"", "xl/workbook.xml": b""}, ".xlsx"),
        ({"[Content_Types].xml": b"", "ppt/presentation.xml": b""}, ".pptx"),
        ({"mimetype": b"application/epub+zip"}, ".epub"),
        ({"word/readme.txt": b"no office file"}, ".zip"),
    ],
)
def test_the_kind_is_told_by_what_lies_inside(tmp_path, parts, kind):
    assert zip_kind(archive(tmp_path, **parts)) == kind


def test_a_broken_container_has_no_kind(tmp_path):
    path = archive(tmp_path, a=b"text")
    path.write_bytes(path.read_bytes()[:-10])
    assert zip_kind(path) == ""
    with pytest.raises(DocumentError) as caught:
        require_sane(path)
    assert caught.value.code == "broken_file"


@pytest.mark.parametrize("limits", [{"max_unpacked_bytes": 1_000_000}, {"max_ratio": 100.0}])
def test_bombs_are_refused_by_size_and_ratio(tmp_path, limits):
    path = archive(tmp_path, a=b"0" * (17 * 1024 * 1024))
    with pytest.raises(DocumentError, match="decompression bomb") as caught:
        require_sane(path, **{"max_ratio": 1e9, "max_unpacked_bytes": 10**12, **limits})
    assert caught.value.code == "archive_bomb"


def test_a_small_file_that_packs_well_is_no_bomb(tmp_path):
    require_sane(archive(tmp_path, a=b"0" * 1_000_000))


def test_a_directory_of_millions_is_refused_unread(tmp_path):
    path = tmp_path / "a.zip"
    path.write_bytes(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65_535, 65_535, 46, 0, 0))
    with pytest.raises(DocumentError) as caught:
        require_sane(path)
    assert caught.value.code == "archive_bomb"


def test_encrypted_entries_are_named(tmp_path):
    path = archive(tmp_path, a=b"text")
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(DocumentError) as caught:
        require_sane(path)
    assert caught.value.code == "encrypted"


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "I/O"), OSError(errno.EMFILE, "many"), ImportError("no module")]
)
def test_what_the_machine_lacks_is_no_damage_of_the_file(error):
    """A damaged file is not tried again until it changes."""
    with pytest.raises(type(error)), reject_damaged("the book cannot be read", "export it"):
        raise error


@pytest.mark.parametrize("error", [OSError("truncated"), OSError(errno.EINVAL, "seek"), KeyError()])
def test_errors_of_parsers_are_damage_of_the_file(error):
    with (
        pytest.raises(DocumentError, match="the book cannot be read") as told,
        reject_damaged("the book cannot be read", "export it"),
    ):
        raise error
    assert told.value.code == "broken_file"
