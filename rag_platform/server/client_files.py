"""The config files of MCP clients: where each is, and how to add a server to one without touching
anything else in it, including comments.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_platform.config.folders import environment
from rag_platform.config.settings import Settings
from rag_platform.errors import InputError, NotFoundError
from rag_platform.storage.store import write_text

# a string (kept), a comment, or a comma before a closing bracket (both blanked)
_JSONC = re.compile(
    r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/|,(?=(?:\s|//[^\n]*|/\*.*?\*/)*[}\]])', re.DOTALL
)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # valid as a bare TOML key and as a prefix of tools
_START_SECONDS = 60  # Codex's default of 10 is too short for a first start from a slow disk


@dataclass(frozen=True, slots=True)
class Launch:
    """How a client starts the server."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]

    def entry(self, **more: Any) -> dict[str, Any]:
        """The entry in a client's file."""
        return {**more, "command": self.command, "args": list(self.args), "env": dict(self.env)}


@dataclass(frozen=True, slots=True)
class ClientFile:
    """A client's config file and the key of its servers; without a path it can only be shown."""

    client: str
    path: Path | None
    section: str
    more: Mapping[str, Any]  # additional fields of this client's entries
    restart: str  # how to make the client read it

    @property
    def is_toml(self) -> bool:
        """True for TOML, False for JSON with comments."""
        return self.path is not None and self.path.suffix == ".toml"

    def snippet(self, name: str, launch: Launch) -> str:
        """The text of the entry alone."""
        entry = launch.entry(**self.more)
        if self.is_toml:
            return _toml(self.section, name, entry)
        return json.dumps({self.section: {name: entry}}, indent=2, ensure_ascii=False)

    def read(self, name: str) -> Launch:
        """How the client starts the server of that name. Raises NotFoundError `no_entry`."""
        assert self.path is not None
        text = self.path.read_text(encoding="utf-8") if self.path.is_file() else ""
        entry = _entries(self._parse(text), self.section).get(name)
        if not isinstance(entry, dict) or not isinstance(entry.get("command"), str):
            raise NotFoundError(
                f"{self.path} names no server {name!r}; `rag mcp install --client {self.client}"
                " --write` puts it there",
                code="no_entry",
            )
        env = {str(key): str(value) for key, value in (entry.get("env") or {}).items()}
        return Launch(entry["command"], tuple(map(str, entry.get("args") or ())), env)

    def merge(self, name: str, launch: Launch) -> tuple[str, str]:
        """(the file's text, its text with the entry); equal if the entry is there already. Raises
        InputError `unreadable_file` for a file that the client could not read either.
        """
        assert self.path is not None
        before = self.path.read_text(encoding="utf-8") if self.path.is_file() else ""
        entry = launch.entry(**self.more)
        known = self._parse(before)
        if _entries(known, self.section).get(name) == entry:
            return before, before
        put = _put_toml if self.is_toml else _put_json
        after = put(before, self.section, name, entry)
        expected = {**known, self.section: {**_entries(known, self.section), name: entry}}
        if self._parse(after) != expected:
            raise self._unreadable("the entry cannot be put into it safely")
        return before, after

    def write(self, text: str) -> None:
        """Replace the file atomically."""
        assert self.path is not None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path.resolve(), text)

    def _parse(self, text: str) -> dict[str, Any]:
        try:
            found = tomllib.loads(text) if self.is_toml else json.loads(_plain(text) or "{}")
        except ValueError as error:
            raise self._unreadable(str(error)) from error
        if not isinstance(found, dict) or not isinstance(found.get(self.section, {}), dict):
            raise self._unreadable(f"it has no table {self.section!r}")
        return found

    def _unreadable(self, why: str) -> InputError:
        return InputError(
            f"{self.path} is left as it is: {why}; add by hand what `rag mcp install --client"
            f" {self.client}` shows",
            code="unreadable_file",
        )


def client_files(home: Path, folder: Path) -> dict[str, ClientFile]:
    """client to its file, for a user's home and a project's folder."""
    if sys.platform == "darwin":
        support = home / "Library" / "Application Support"
    elif os.name == "nt":
        support = Path(os.environ.get("APPDATA") or home / "AppData" / "Roaming")
    else:
        support = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    zed = home / ".config" if sys.platform == "darwin" else support
    codex = Path(os.environ.get("CODEX_HOME") or home / ".codex")
    stdio = {"type": "stdio"}
    files = (
        ClientFile(
            "claude-desktop",
            support / "Claude" / "claude_desktop_config.json",
            "mcpServers",
            {},
            "quit Claude Desktop and start it again",
        ),
        ClientFile(
            "claude-code", folder / ".mcp.json", "mcpServers", stdio, "start `claude` here again"
        ),
        ClientFile(
            "vscode", folder / ".vscode" / "mcp.json", "servers", stdio, "start it in that file"
        ),
        ClientFile(
            "cursor", home / ".cursor" / "mcp.json", "mcpServers", {}, "switch it on in Cursor"
        ),
        ClientFile(
            "zed",
            zed / ("Zed" if os.name == "nt" else "zed") / "settings.json",
            "context_servers",
            {"source": "custom"},
            "Zed reads it at once",
        ),
        ClientFile(
            "codex",
            codex / "config.toml",
            "mcp_servers",
            {"startup_timeout_sec": _START_SECONDS},
            "start `codex` again",
        ),
        ClientFile("generic", None, "mcpServers", {}, "put it where your client wants it"),
    )
    return {file.client: file for file in files}


def launch_of(settings: Settings, options: Sequence[str] = ()) -> Launch:
    """How a client starts this installation with this data root and config, from any folder."""
    program = Path(sys.executable).with_name("rag.exe" if os.name == "nt" else "rag")
    start = (
        (str(program),) if program.is_file() else (sys.executable, "-m", "rag_platform.cli.main")
    )
    named = {key: os.environ[key] for key in ("RAG_NAMESPACE",) if key in os.environ}
    env = {**environment(settings.home), **named}
    return Launch(start[0], (*start[1:], "serve", *options), env)


def check_name(name: str) -> None:
    """Raises InputError for a name that a client would refuse."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"name {name[:80]!r}: take letters, digits, _ and - (64 at most)", code="bad_name"
        )


def _entries(parsed: Mapping[str, Any], section: str) -> dict[str, Any]:
    return dict(parsed.get(section, {}))


# --- JSON with comments -------------------------------------------------------------------------


def _plain(text: str) -> str:
    """The text as JSON of the same length, with comments and trailing commas blanked."""

    def blank(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else re.sub(r"[^\n]", " ", match[0])

    return _JSONC.sub(blank, text).strip("\ufeff") if text.strip() else ""


def _put_json(text: str, section: str, name: str, entry: Mapping[str, Any]) -> str:
    """The text with the entry in its section, replacing an earlier one."""
    text = text if text.strip() else "{}\n"
    root = _plain(text).index("{")
    members = {key: span for key, *span in _members(_plain(text), root)}
    if section not in members:
        return _insert(text, root, bool(members), section, {name: entry}, 1)
    start, _ = members[section]
    inner = {key: span for key, *span in _members(_plain(text), start)}
    if name not in inner:
        return _insert(text, start, bool(inner), name, entry, 2)
    begin, end = inner[name]
    return text[:begin] + _indent(entry, 2) + text[end:]


def _members(plain: str, start: int) -> Iterator[tuple[str, int, int]]:
    """(key, start, end of its value) of each member of the object at `start`."""
    decoder, at = json.JSONDecoder(), start + 1
    while True:
        at += len(plain[at:]) - len(plain[at:].lstrip(" \t\r\n,"))
        if plain[at] != '"':
            return
        key, at = decoder.raw_decode(plain, at)
        at = plain.index(":", at) + 1
        at += len(plain[at:]) - len(plain[at:].lstrip())
        _, end = decoder.raw_decode(plain, at)
        yield key, at, end
        at = end


def _insert(text: str, start: int, more: bool, key: str, value: Any, depth: int) -> str:
    """The text with a member inserted at the beginning of the object at `start`."""
    pad = "  " * depth
    member = f"\n{pad}{json.dumps(key)}: {_indent(value, depth)}{',' if more else ''}"
    rest = text[start + 1 :]
    closing = "" if more or rest.lstrip(" \t").startswith("\n") else "\n" + "  " * (depth - 1)
    return text[: start + 1] + member + closing + rest


def _indent(value: Any, depth: int) -> str:
    lines = json.dumps(value, indent=2, ensure_ascii=False).splitlines()
    return ("\n" + "  " * depth).join(lines)


# --- TOML ---------------------------------------------------------------------------------------


def _put_toml(text: str, section: str, name: str, entry: Mapping[str, Any]) -> str:
    """The text with the entry appended, and an earlier one removed."""
    own = re.compile(rf'\s*\[\s*{section}\s*\.\s*"?{re.escape(name)}"?\s*(\.[^\]]*)?\]')
    kept: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.lstrip().startswith("["):
            inside = own.match(line) is not None
        if not inside:
            kept.append(line)
    before = "\n".join(kept).strip()
    return (f"{before}\n\n" if before else "") + _toml(section, name, entry) + "\n"


def _toml(section: str, name: str, entry: Mapping[str, Any]) -> str:
    """A table and its `env`; strings, numbers and lists have the same syntax in JSON and TOML."""
    lines = [f"[{section}.{name}]"]
    lines += [f"{key} = {_toml_value(value)}" for key, value in entry.items() if key != "env"]
    lines += ["", f"[{section}.{name}.env]"]
    lines += [f"{key} = {_toml_value(value)}" for key, value in entry["env"].items()]
    return "\n".join(lines)


def _toml_value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
