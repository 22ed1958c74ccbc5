"""The version of this program."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


@cache
def build_info() -> dict[str, str]:
    """`app_version` and `git_sha` of this program, for traces and the status."""
    from importlib import metadata

    try:
        version = metadata.version("rag-platform")
    except metadata.PackageNotFoundError:
        version = "unknown"
    return {
        "app_version": version,
        "git_sha": os.environ.get("RAG_GIT_SHA") or _git_sha(Path(__file__).resolve().parents[2]),
    }


def _git_sha(root: Path) -> str:
    """The commit of a checkout, read without starting git; empty for an installed package."""
    try:
        head = (root / ".git" / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref: "):
            return head[:12]
        loose = root / ".git" / head[5:]
        return loose.read_text(encoding="utf-8").strip()[:12] if loose.is_file() else ""
    except OSError:
        return ""
