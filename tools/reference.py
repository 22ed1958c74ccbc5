"""Writes docs/reference from the code: commands, JSON, config, constants, error codes (`make
reference`).
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import types
import typing
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import typing_extensions
from pydantic import SecretStr

from rag_platform import registry
from rag_platform.cli.main import main
from rag_platform.config.query import Section
from rag_platform.config.settings import Settings, Strategy, variables
from rag_platform.contract import schema
from rag_platform.errors import ConfigError, RagError

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
_HEAD = "<!-- Written by `make reference` from the code; not to be edited. -->\n\n"
_WIDTH = 100
# a comment "what it is; its source" above a constant
_CONSTANT = re.compile(r"((?:^# .*\n)+)^([A-Z_]+): Final = ", re.MULTILINE)


def pages() -> dict[str, str]:
    """File name to text of every page."""
    found = {
        "cli.md": _commands(),
        "json.md": _json(),
        "config.md": _config(),
        "constants.md": _constants(),
        "errors.md": _errors(),
    }
    return {name: _HEAD + "".join(parts).rstrip() + "\n" for name, parts in found.items()}


def _commands() -> Iterator[str]:
    yield "# Commands\n\nEvery command takes `--help`; "
    yield "all but `serve`, `ui` and `dagster` take `--json`.\n"
    yield from _group(main, click.Context(main, info_name="rag", **main.context_settings))


def _group(group: click.Group, above: click.Context) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        context = click.Context(command, parent=above, info_name=name, terminal_width=_WIDTH)
        if isinstance(command, click.Group):
            yield from _group(command, context)
            continue
        text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
        yield f"\n## {context.command_path}\n\n```text\n{text}\n```\n"


def _json() -> Iterator[str]:
    yield (
        "# JSON\n\nWith `--json` a command prints one envelope: `schema_version`, `ok`, `trace_id`,"
        " `data`, `warnings`, `error`. What `data` holds is below; the MCP tools return the same.\n"
    )
    for name, kind in vars(schema).items():
        if not typing_extensions.is_typeddict(kind):
            continue
        yield f"\n## {name}\n\n{inspect.cleandoc(kind.__doc__ or '')}\n\n"
        yield "| field | type | always there |\n|---|---|---|\n"
        for field, wanted in kind.__annotations__.items():
            text = wanted.__forward_arg__ if isinstance(wanted, typing.ForwardRef) else str(wanted)
            # `__required_keys__` cannot tell, because annotations are strings
            optional = re.fullmatch(r"NotRequired\[(.*)\]", text)
            text = (optional[1] if optional else text).replace("|", "\\|")
            yield f"| `{field}` | `{text}` | {'no' if optional else 'yes'} |\n"


def _config() -> Iterator[str]:
    yield "# Config\n\n## settings.yaml\n\n| key | type | default | variable |\n|---|---|---|---|\n"
    names = variables()
    for key, text, default in _keys(Settings):
        shown = "see README" if key == "home" else default
        yield f"| `{key}` | `{text}` | {shown} | `{names[key]}` |\n"
    yield "\n## A strategy\n\n| key | type | default |\n|---|---|---|\n"
    for key, text, default in _keys(Strategy):
        yield f"| `{key}` | `{text}` | {default} |\n"
    yield "\n## Options of providers\n\n| kind | provider | options with their defaults |\n"
    yield "|---|---|---|\n"
    for kind, table in registry.PROVIDERS.items():
        for name in table:
            yield f"| {kind} | `{name}` | {_options(kind, name)} |\n"


def _keys(model: type[Section], above: str = "") -> Iterator[tuple[str, str, str]]:
    for name, info in model.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            yield from _keys(kind, f"{above}{name}.")
            continue
        default = "required" if info.is_required() else f"`{info.get_default()!r}`"
        if info.default_factory is not None or kind is SecretStr:
            default = "empty"
        yield f"{above}{name}", _type_name(kind), default.replace("|", "\\|")


def _type_name(kind: Any) -> str:
    if isinstance(kind, type) and not isinstance(kind, types.GenericAlias):
        return kind.__name__
    return re.sub(r"\b(?:\w+\.)+", "", str(kind)).replace("|", "\\|")


def _options(kind: str, name: str) -> str:
    try:
        options = registry.defaults(kind, name)
    except ConfigError:
        return f"needs the extra `{registry.EXTRAS[name]}`"
    shown = [
        f"`{option}`" if value is dataclasses.MISSING else f"`{option}: {value!r}`"
        for option, value in options.items()
    ]
    return ", ".join(shown).replace("|", "\\|") or "none"


def _constants() -> Iterator[str]:
    yield (
        "# Constants\n\nNumbers that a question goes by and no setting changes. A source is a"
        " publication, a decision, or `chosen by hand`.\n"
    )
    for stage in ("query", "retrieval", "answering"):
        module = importlib.import_module(f"rag_platform.{stage}.constants")
        yield f"\n## {stage}/constants.py\n\n| constant | value | what it is | source |\n"
        yield "|---|---|---|---|\n"
        for comment, name in _CONSTANT.findall(inspect.getsource(module)):
            lines = [line.removeprefix("# ") for line in comment.splitlines()]
            what, _, source = " ".join(line for line in lines if "---" not in line).rpartition("; ")
            yield f"| `{name}` | {getattr(module, name)} | {what} | {_link_source(source)} |\n"


def _link_source(source: str) -> str:
    """The source of a constant, a decision as a link to it. Raises ValueError without one."""
    if source == "chosen by hand" or re.search(r"\b(?:19|20)\d\d$", source):
        return source
    for decision in ROOT.glob(f"{source}-*.md") if source.startswith("docs/decisions/") else ():
        return f"[decision {int(source[-4:])}](../decisions/{decision.name})"
    raise ValueError(
        f"a constant's source is {source!r}: name a publication with its year, a"
        " decision under docs/decisions, or `chosen by hand`"
    )


def _errors() -> Iterator[str]:
    yield (
        "# Error codes\n\n`error.code` of the envelope, and the word in brackets on the terminal.\n"
        "Exit codes: 0 done, 1 nothing done, 2 wrong usage, 3 done but some documents failed.\n\n"
        "| code | what it says |\n|---|---|\n"
    )
    found: dict[str, set[str]] = defaultdict(set)
    for kind in [RagError, *_below(RagError)]:
        found[kind.default_code].add(inspect.cleandoc(kind.__doc__ or "").split(".")[0])
    for path in sorted((ROOT / "rag_platform").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and (code := _code(node)):
                found[code].add(_message(node))
    for code in sorted(found):
        texts = sorted(text for text in found[code] if text and f"{text}…" not in found[code])
        yield f"| `{code}` | {'; or '.join(texts[:2]) or 'the message says it'} |\n"


def _below(kind: type[RagError]) -> list[type[RagError]]:
    return [each for sub in kind.__subclasses__() for each in (sub, *_below(sub))]


def _code(call: ast.Call) -> str:
    values = [word.value for word in call.keywords if word.arg == "code"]
    if not values or not ast.unparse(call.func).endswith(("Error", "fail_if")):
        return ""
    return str(values[0].value) if isinstance(values[0], ast.Constant) else ""


def _message(call: ast.Call) -> str:
    first = call.args[0] if call.args else None
    if isinstance(first, ast.Constant):
        text = str(first.value)
    elif isinstance(first, ast.JoinedStr):
        text = "".join(
            str(part.value) if isinstance(part, ast.Constant) else "…" for part in first.values
        )
    else:
        return ""
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= 160 else text[:160].rsplit(" ", 1)[0] + " …"


def write() -> None:
    """Write every page."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
