"""Images: stored once, never from outside the root, every failure with its reason."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from PIL import Image

from rag_platform.config.ingestion import MediaConfig
from rag_platform.config.settings import FetchLimits
from rag_platform.documents.versions import VersionBuild
from rag_platform.intake import isolation
from rag_platform.ir import Facts, MediaRef, ParseSummary
from rag_platform.loaders.pdf.mupdf import PdfLoader
from rag_platform.media.store import Base, resolve
from rag_platform.storage.store import Store, read_json

DATASHEET = Path(__file__).resolve().parents[2] / "rag_platform" / "samples" / "datasheet.pdf"


@pytest.fixture(autouse=True, scope="module")
def _end_children():
    yield
    isolation.pool().close()


def picture(width: int = 8, height: int = 6, kind: str = "PNG", mode: str = "RGB") -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (width, height)).save(stream, kind)
    return stream.getvalue()


def facts_with(*targets: str) -> Facts:
    refs = tuple(
        MediaRef(f"r{n}", "markdown", target, start=n, end=n + 1, order=n, heading_path="A > B")
        for n, target in enumerate(targets)
    )
    return Facts("", (), refs, ParseSummary("markdown", "1", "x", "1", "p", "", 0))


def reasons(tmp_path: Path, *targets: str, config: MediaConfig | None = None) -> list[str]:
    root = tmp_path / "root"
    links = resolve(
        facts_with(*targets),
        tmp_path,
        Store(tmp_path / "home"),
        config or MediaConfig(),
        Base(root / "docs", root),
    )
    assert all(bool(link.asset_id) != bool(link.reason) for link in links)
    return [link.reason for link in links]


@pytest.fixture
def folder(tmp_path):
    docs = tmp_path / "root" / "docs"
    docs.mkdir(parents=True)
    (docs / "a.png").write_bytes(picture())
    (docs / "with space.png").write_bytes(picture())
    (tmp_path / "root" / "up.png").write_bytes(picture())
    (tmp_path / "secret.png").write_bytes(picture())
    return docs


def test_equal_bytes_are_one_asset_with_original_thumb_and_meta(tmp_path, folder):
    (folder / "big.png").write_bytes(picture(640, 480))
    store = Store(tmp_path / "home")
    facts = facts_with("a.png", "with%20space.png", "../up.png", "big.png", "a.png?v=2", "a.png#x")
    links = resolve(facts, tmp_path, store, MediaConfig(), Base(folder, tmp_path / "root"))
    sha = hashlib.sha256(picture()).hexdigest()
    assert [link.asset_id == sha for link in links] == [True, True, True, False, True, True]
    assert (links[0].mime, links[0].width, links[0].height, links[0].size) == (
        "image/png",
        8,
        6,
        len(picture()),
    )
    assert (
        links[1].ref_id,
        links[1].start,
        links[1].end,
        links[1].order,
        links[1].heading_path,
    ) == ("r1", 1, 2, 1, "A > B")
    directory = store.media_dir(links[3].asset_id)
    assert sorted(path.name for path in directory.iterdir()) == [
        "meta.json",
        "original.png",
        "thumb.webp",
    ]
    assert (directory / "original.png").read_bytes() == picture(640, 480)
    with Image.open(directory / "thumb.webp") as thumb:
        assert thumb.size == (320, 240)
    meta = read_json(directory / "meta.json")
    assert (meta["schema_version"], meta["mime"], meta["width"], meta["height"]) == (
        1,
        "image/png",
        640,
        480,
    )


def test_nothing_outside_the_root_is_read(tmp_path, folder):
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "inside.png").symlink_to(tmp_path / "root" / "up.png")
    targets = [
        "../../secret.png",
        "..%2f..%2fsecret.png",
        "/etc/passwd",
        "C:\\x.png",
        "\\\\host\\share\\a.png",
        "link.png",
        "inside.png",
        ".",
    ]
    assert reasons(tmp_path, *targets) == [*["outside_root"] * 6, "", "not_found"]


def test_nothing_is_fetched(tmp_path, folder):
    targets = [
        "http://169.254.169.254/latest",
        "HTTPS://example.org/a.png",
        "//example.org/a.png",
        "file:///etc/passwd",
        "javascript:alert(1)",
    ]
    assert reasons(tmp_path, *targets) == [*["remote_not_fetched"] * 3, *["scheme_not_allowed"] * 2]


def test_data_uris_are_decoded_and_broken_ones_named(tmp_path, folder):
    good = "data:image/png;base64," + base64.b64encode(picture()).decode()
    assert reasons(
        tmp_path, good, "data:image/png;base64,%%%", "data:nothing", "data:text/plain,hello"
    ) == [
        "",
        "broken_data_uri",
        "broken_data_uri",
        "not_an_image",
    ]


def test_limits_are_judged_before_decoding(tmp_path, folder):
    (folder / "wide.png").write_bytes(picture(400, 400, mode="1"))
    assert reasons(tmp_path, "wide.png", "a.png", config=MediaConfig(max_pixels=1000)) == [
        "too_many_pixels",
        "",
    ]
    assert reasons(tmp_path / "x", "a.png") == ["not_found"]
    assert reasons(tmp_path, "wide.png", config=MediaConfig(max_bytes=20)) == ["too_large"]


def test_broken_images_have_a_reason_and_do_not_stop_the_others(tmp_path, folder):
    (folder / "zero.png").write_bytes(b"")
    (folder / "cut.jpg").write_bytes(picture(200, 200, "JPEG")[:300])
    (folder / "text.png").write_bytes(b"<html>no image</html>")
    (folder / "drawing.svg").write_bytes(b"<svg xmlns='http://www.w3.org/2000/svg'/>")
    (folder / "liar.png").write_bytes(picture(8, 8, "JPEG"))
    found = reasons(
        tmp_path, "zero.png", "cut.jpg", "text.png", "drawing.svg", "gone.png", "liar.png"
    )
    assert found == [
        "empty_file",
        "broken_image: it ends too early",
        "not_an_image",
        "",
        "not_found",
        "",
    ]


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("JPEG", "CMYK"),
        ("PNG", "I;16"),
        ("PNG", "LA"),
        ("GIF", "P"),
        ("TIFF", "F"),
        ("WEBP", "RGBA"),
    ],
)
def test_every_mode_gets_a_thumbnail(tmp_path, folder, kind, mode):
    (folder / "x").write_bytes(picture(40, 30, kind, mode))
    assert reasons(tmp_path, "x") == [""]


@pytest.mark.integration
def test_images_of_a_pdf_are_taken_out_by_their_object_number(tmp_path):
    facts = PdfLoader(profile="fast").load(DATASHEET, "datasheet.pdf")
    links = resolve(facts, DATASHEET, Store(tmp_path), MediaConfig(), Base())
    assert [(link.page, link.mime, link.width, link.height, link.reason) for link in links] == [
        (1, "image/png", 640, 200, ""),
        (3, "image/png", 560, 254, ""),
    ]


def test_without_a_folder_relative_images_say_so(tmp_path):
    links = resolve(facts_with("a.png"), tmp_path, Store(tmp_path), MediaConfig(), Base())
    assert [link.reason for link in links] == ["no_base_folder"]


@contextlib.contextmanager
def web(pages: dict[str, bytes]):
    """A local web server; yields (its address, the paths asked for)."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            found = pages.get(self.path)
            self.send_response(200 if found is not None else 404)
            self.end_headers()
            self.wfile.write(found or b"")

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.integration
def test_remote_images_are_fetched_once_where_that_is_on(tmp_path):
    with web({"/a.png": picture(), "/page/b.png": picture(9, 9), "/page/text.png": b"hello"}) as (
        host,
        asked,
    ):
        targets = [
            f"http://{host}/a.png",
            "b.png",
            f"//{host}/a.png",
            "gone.png",
            "text.png",
            f"http://{host}/a.png",
            "data:image/png,x",
        ]

        def reasons_of(**config: bool) -> list[str]:
            links = resolve(
                facts_with(*targets),
                tmp_path,
                Store(tmp_path),
                MediaConfig(**config),
                Base(url=f"http://{host}/page/index.html"),
                fetching=FetchLimits(allow=(host,)),
            )
            return [link.reason for link in links]

        assert reasons_of() == [*["remote_not_fetched"] * 6, "not_an_image"]
        assert asked == []
        found = reasons_of(fetch_remote=True)
    assert found == ["", "", "", "fetch_failed: http_refused", "not_an_image", "", "not_an_image"]
    assert asked.count("/a.png") == 2  # by two spellings of its address


def test_private_addresses_are_refused_for_images_too(tmp_path):
    links = resolve(
        facts_with("http://127.0.0.1:1/a.png", "http://[::1]/a.png", "http://169.254.169.254/x"),
        tmp_path,
        Store(tmp_path),
        MediaConfig(fetch_remote=True),
        Base(),
    )
    assert [link.reason for link in links] == [
        "fetch_failed: port_not_allowed",
        *["fetch_failed: address_refused"] * 2,
    ]


def test_parts_of_a_docx_are_read_from_the_container(tmp_path):
    path = tmp_path / "stored"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/media/image1.png", picture())
        archive.writestr("../../evil.png", picture(3, 3))
    names = ["docx:word/media/image1.png", "docx:word/media/none.png", "docx:../../evil.png"]
    refs = tuple(MediaRef(f"r{n}", "docx", name, order=n) for n, name in enumerate(names))
    facts = Facts("", (), refs, ParseSummary("docx", "1", "x", "1", "p", "", 0))
    links = resolve(facts, path, Store(tmp_path / "home"), MediaConfig(), Base(tmp_path, tmp_path))
    assert [link.reason for link in links] == ["", "not_found", ""]
    assert sorted(item.name for item in tmp_path.iterdir()) == ["home", "stored"]
    assert [
        link.reason
        for link in resolve(facts_with(*names[:1]), path, Store(tmp_path), MediaConfig(), Base())
    ] == ["scheme_not_allowed"]
    path.write_bytes(b"no archive")
    assert [
        link.reason for link in resolve(facts, path, Store(tmp_path), MediaConfig(), Base())
    ] == ["broken_file"] * 3


@pytest.mark.integration
def test_images_of_a_pdf_belong_to_the_chunk_beside_them(shelf, tiny):
    shelf.ingest(DATASHEET)
    work = VersionBuild(shelf.ledger.versions("default")[0], tiny, shelf.settings, shelf.store)
    owners = {
        link.asset_id: [chunk for chunk in work.chunks if link.asset_id in chunk.asset_ids]
        for link in work.links
    }
    assert [len(chunks) for chunks in owners.values()] == [1, 1]
    assert [
        (chunk.page_start, "Figure" in chunk.chunk_text)
        for chunks in owners.values()
        for chunk in chunks
    ] == [(1, True), (3, True)]
