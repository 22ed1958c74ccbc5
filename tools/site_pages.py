"""What the documentation site takes from outside docs/, and the proof that it fetches nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_PAGES = {
    "README.md": "index.md",
    "README.zh.md": "zh.md",
    "CHANGELOG.md": "changelog.md",
    "THIRD_PARTY_NOTICES.md": "third-party-notices.md",
    "LICENSE": "LICENSE.txt",
    "NOTICE": "NOTICE.txt",
}
_LINK = re.compile(r"(?<=\]\()(?:\.\./)?([^)#:\s]+)")
_FETCHED = re.compile(
    r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^\s>]+"
)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the root, with links as they are on the site."""
    from mkdocs.structure.files import File

    for name, page in _PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_relink(text)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links out of docs/ to the pages of the site."""
    return re.sub(
        r"(?<=\]\()\.\./(README(?:\.zh)?\.md|CHANGELOG\.md)", lambda m: _PAGES[m[1]], markdown
    )


def on_post_build(config: Any) -> None:
    """Raise for a page that loads anything from another server."""
    from mkdocs.exceptions import PluginError

    for path in Path(config.site_dir).rglob("*.html"):
        if found := _FETCHED.search(path.read_text(encoding="utf-8")):
            raise PluginError(f"{path.name} fetches from elsewhere: {found[0]}")


def _relink(text: str) -> str:
    return _LINK.sub(lambda link: _PAGES.get(link[1], link[1].removeprefix("docs/")), text)
