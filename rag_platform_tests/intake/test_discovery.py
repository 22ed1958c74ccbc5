"""What counts as gone from a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_platform.config.settings import load_settings
from rag_platform.intake.discovery import Finds, Found, SourceOptions, find
from rag_platform.ir import Document
from rag_platform.ledger.schema import Source

DOCS = Source("lib", "docs", "folder", "/docs")


def found(name: str, ignored: str = "", arriving: bool = False) -> Found:
    return Found(Path(name), DOCS, f"docs/{name}", False, ignored, arriving=arriving)


def test_gone_is_what_was_looked_for_and_not_seen() -> None:
    """Not what lies elsewhere, in a folder that could not be read, or is still being written; but
    what a glob leaves out now.
    """
    files = [
        found("here.md"),
        found("half.md", "still written", arriving=True),
        found("out.md", "in exclude"),
    ]
    finds = Finds(
        {file.source_uri: file for file in files}, looked=["docs/"], unseen=["docs/locked/"]
    )
    uris = [
        "docs/here.md",
        "docs/half.md",
        "docs/out.md",
        "docs/gone.md",
        "docs/locked/a.md",
        "docs2/a.md",
        "files/a.md",
    ]
    documents = [Document("lib", uri, uri.split("/")[0], uri, uri) for uri in uris]
    assert [document.source_uri for document in finds.missing(documents)] == [
        "docs/out.md",
        "docs/gone.md",
    ]


def test_what_documentation_tools_build_beside_the_pages_is_not_read(tmp_path: Path) -> None:
    """Where a file shows that one of them has built the folder."""
    built = "_modules/jar.html _sources/jar.rst.txt _static/doctools.js genindex.html search.html"
    for name in ("html/objects.inv", *(f"html/{it}" for it in f"{built} jar.html".split())):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "search.html").touch()
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static/menu.js").touch()
    options = SourceOptions()
    finds = find(
        [tmp_path], "lib", load_settings({"home": str(tmp_path / "home")}), [], [], options
    )
    read = {
        it.path.relative_to(tmp_path).as_posix() for it in finds.found.values() if not it.ignored
    }
    assert read == {"_static/menu.js", "html/jar.html", "html/objects.inv", "search.html"}


def test_packages_that_are_installed_in_a_folder_are_not_read_unless_named(tmp_path: Path) -> None:
    names = ["a.md", "node_modules/left-pad/README.md", "py/site-packages/x/NEWS.md", "node.md"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    settings = load_settings({"home": str(tmp_path / "home")})

    def read(start: Path, options: SourceOptions) -> set[str]:
        found = find([start], "lib", settings, [], [], options).found.values()
        return {it.path.name for it in found if not it.ignored}

    assert read(tmp_path, SourceOptions()) == {"a.md", "node.md"}
    named = SourceOptions(include=("node_modules",))
    assert read(tmp_path, named) == {"README.md"}
    assert read(tmp_path / "node_modules", SourceOptions()) == {"README.md"}


def test_of_hidden_files_only_what_says_which_variables_there_are_is_read(tmp_path: Path) -> None:
    for name in (".env", ".env.example", ".git/.env.example", "a.md", ".npmrc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    settings = load_settings({"home": str(tmp_path / "home")})
    found = find([tmp_path], "lib", settings, [], [], SourceOptions()).found.values()
    assert {it.path.name for it in found if not it.ignored} == {".env.example", "a.md"}


def test_nothing_is_gone_where_nothing_was_looked_through() -> None:
    assert Finds().missing([Document("lib", "a", "docs", "docs/a.md", "a.md")]) == []


@pytest.mark.parametrize(
    ("glob", "named"),
    [
        ("**/*.md", ["a.md", "drafts/b.md", "drafts/old/c.md"]),
        ("drafts/**/*.md", ["drafts/b.md", "drafts/old/c.md"]),
        ("drafts", ["drafts/b.md", "drafts/old/c.md"]),
        ("drafts/", ["drafts/b.md", "drafts/old/c.md"]),
        ("**/old", ["drafts/old/c.md"]),
        ("**/drafts/**/*.md", ["drafts/b.md", "drafts/old/c.md"]),
        ("**/drafts/**/old/**/c.md", ["drafts/old/c.md"]),
        ("./drafts/**/**/c.md", ["drafts/old/c.md"]),
        ("a**/.md", []),
        ("**/??.md", []),
        ("**/?.md", ["a.md", "drafts/b.md", "drafts/old/c.md"]),
        ("draft", []),
        ("*.md", ["a.md", "drafts/b.md", "drafts/old/c.md"]),
    ],
)
def test_globs_name_files_and_folders_at_any_depth(
    tmp_path: Path, glob: str, named: list[str]
) -> None:
    """`**/` also stands for no folder, and a folder for what is in it."""
    root = tmp_path / "kb"
    paths = ["a.md", "drafts/b.md", "drafts/old/c.md", "notes.txt"]
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    settings = load_settings({"home": str(tmp_path / "home")})
    for options, read in (
        (SourceOptions(include=(glob,)), named),
        (SourceOptions(exclude=(glob,)), [path for path in paths if path not in named]),
    ):
        finds = find([root], "lib", settings, [], [], options)
        assert sorted(uri for uri, file in finds.found.items() if not file.ignored) == [
            f"kb/{path}" for path in read
        ]
