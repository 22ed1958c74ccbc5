"""What documents and error messages promise exists: commands with their options, make targets,
files, tools.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from rag_platform.cli.main import main
from rag_platform.config.folders import SHIPPED

REPOSITORY = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    REPOSITORY / "README.md",
    REPOSITORY / "README.zh.md",
    REPOSITORY / "CHANGELOG.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")),
]
MODULES = sorted((REPOSITORY / "rag_platform").rglob("*.py"))
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_COMMAND = re.compile(r"^(?:\S*/)?rag(?: |$)")


def name(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def commands(
    group: click.Group, prefix: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """(words, command) of every command below a group."""
    for word, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*prefix, word))
        else:
            yield (*prefix, word), command


COMMANDS = dict(commands(main))


def problem(line: str) -> str:
    """Why a command line could not be run, empty when it could; arguments are not looked at,
    placeholders may stand for them.
    """
    try:
        words = shlex.split(line.replace("…", " "), comments=True)[1:]
    except ValueError as error:
        return f"{line!r}: {error}"
    path = next((words[:n] for n in (2, 1) if tuple(words[:n]) in COMMANDS), None)
    if path is None:
        group = (
            words[:1] and isinstance(main.commands.get(words[0]), click.Group) and len(words) == 1
        )
        return (
            ""
            if group or words[:1] in ([], ["--help"], ["--version"])
            else f"{line!r}: no such command"
        )
    known = {
        option
        for parameter in COMMANDS[tuple(path)].params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    unknown = [
        word.partition("=")[0]
        for word in words
        if word.startswith("--") and word.partition("=")[0] not in {*known, "--help"}
    ]
    return f"{line!r}: no option {unknown[0]}; it has {', '.join(sorted(known))}" if unknown else ""


def shown(text: str) -> list[str]:
    """The command lines of a text: in fenced blocks, `$ ` left off, and in inline code."""
    lines = [
        line.strip().removeprefix("$ ")
        for _, block in _FENCE.findall(text)
        for line in block.splitlines()
    ]
    return [line for line in [*lines, *_CODE.findall(_FENCE.sub("", text))] if _COMMAND.match(line)]


def test_every_command_in_the_documents_exists() -> None:
    wrong = [
        f"{name(document)}: {found}"
        for document in DOCUMENTS
        for line in shown(document.read_text(encoding="utf-8"))
        if (found := problem(line))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_readme_shows_commands_at_all() -> None:
    assert len(shown(DOCUMENTS[0].read_text(encoding="utf-8"))) >= 10


def in_messages() -> Iterator[tuple[str, str]]:
    """(module, command) of every command in a message of the code, with X for values."""
    for module in MODULES:
        nodes = list(ast.walk(ast.parse(module.read_text(encoding="utf-8"))))
        docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if node in docstrings:
                continue
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "X"
                for part in parts
                if isinstance(part, ast.Constant | ast.FormattedValue)
            )
            for command in _CODE.findall(text):
                if _COMMAND.match(command):
                    yield name(module), command


def test_every_command_in_a_message_exists() -> None:
    """A remedy that names a command nobody has is worse than none."""
    found = list(in_messages())
    assert len(found) > 150
    wrong = [f"{where}: {text}" for where, line in found if (text := problem(line))]
    assert not wrong, "\n".join(wrong)


# of damaged files, whose library the code does not know there; `name_library` adds it
_OF_ANY_LIBRARY = {
    "rag_platform/errors.py",
    "rag_platform/indexes/catalog.py",
    "rag_platform/indexes/catalog_tables.py",
    "rag_platform/indexes/document_names.py",
}
_READS_ONE = re.compile(
    r"rag (?:rebuild|(?:docs|drafts|releases|expect|sources) \w+|jobs retry --all|gc --prove)\b"
)


def test_commands_in_messages_name_their_library() -> None:
    """Where there are several, the command is refused or works on the default one without it."""
    bare = [
        f"{where}: {command}"
        for where, command in in_messages()
        if _READS_ONE.match(command) and "--namespace" not in command
        if where not in _OF_ANY_LIBRARY and " DOC" not in command
    ]
    assert not bare, "\n".join(bare)


def test_the_table_of_commands_is_complete_and_its_options_exist() -> None:
    rows = re.findall(
        r"^\| (.*`rag .*?) \| (.*) \|$", DOCUMENTS[0].read_text(encoding="utf-8"), re.MULTILINE
    )
    told: set[tuple[str, ...]] = set()
    for cell, description in rows:
        words = [code.split() for code in _CODE.findall(cell)]
        first = words[0][1:]
        named = [tuple(first[:n]) for n in (2, 1) if tuple(first[:n]) in COMMANDS][:1]
        # `rag releases list`, `show`, `rollback`: the later ones leave the group out
        named += [
            (first[0], *item[:1]) if item[0] != "rag" else tuple(item[1:3]) for item in words[1:]
        ]
        named = [item if item in COMMANDS else item[:1] for item in named]
        assert set(named) <= set(COMMANDS), cell
        told |= set(named)
        options = {
            option
            for item in named
            for parameter in COMMANDS[item].params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        assert set(re.findall(r"--[a-z][a-z-]+", description)) <= options, cell
    assert told == set(COMMANDS)


def test_the_chinese_readme_is_the_english_one() -> None:
    """Its headings, examples and tables; the options beside a command, its links and files."""
    english, chinese = (path.read_text(encoding="utf-8") for path in DOCUMENTS[:2])
    assert "](README.zh.md)" in english.partition("\n## ")[0]
    assert "](README.md)" in chinese.partition("\n## ")[0]
    for pattern in (r"^#+(?= )", r"^```(?s:.*?)^```", r"^\| (?:`.*?`[^|]*?)(?= \| )"):
        found, wanted = (re.findall(pattern, text, re.MULTILINE) for text in (chinese, english))
        assert found == wanted
    for line, original in zip(table_rows(chinese), table_rows(english), strict=True):
        assert sorted(re.findall("--[a-z-]+", line)) == sorted(re.findall("--[a-z-]+", original)), (
            line
        )
    chinese = chinese.replace(".zh.png", ".en.png")
    links = [sorted(set(re.findall(r"\]\((.*?)\)", text))) for text in (chinese, english)]
    assert set(links[0]) ^ set(links[1]) == {"README.md", "README.zh.md"}


def table_rows(text: str) -> list[str]:
    return re.findall(r"^\| `.*$", text, re.MULTILINE)


def test_every_make_target_in_the_documents_exists() -> None:
    targets = set(
        re.findall(
            r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    wrong = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        lines = [
            line.strip() for _, block in _FENCE.findall(text) for line in block.splitlines()
        ] + _CODE.findall(_FENCE.sub("", text))
        words = [
            word
            for line in lines
            if line.startswith("make ")
            for word in line.split("#")[0].split()[1:]
        ]
        named = {word for word in words if re.fullmatch("[a-z][a-z-]*", word)}
        wrong += [f"{name(document)}: make {word}" for word in sorted(named - targets)]
    assert not wrong, "\n".join(wrong)


def test_links_files_and_json_blocks_hold() -> None:
    wrong = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        links = [link for link in re.findall(r"\]\(([^)#\s]+)\)", text) if "://" not in link]
        places = [
            REPOSITORY,
            REPOSITORY / "rag_platform",
            REPOSITORY / "rag_platform_tests",
            document.parent,
        ]
        files = [
            code
            for code in _CODE.findall(_FENCE.sub("", text))
            if re.fullmatch(r"[a-z_]+(/[\w.-]+)+\.(py|md|yaml|toml)", code)
        ]
        missing = [link for link in links if not (document.parent / link).exists()]
        missing += [file for file in files if not any((place / file).is_file() for place in places)]
        missing += [
            block
            for language, block in _FENCE.findall(text)
            if language == "json" and not is_json(block)
        ]
        wrong += [f"{name(document)}: {item}" for item in missing]
    assert not wrong, "\n".join(wrong)


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def test_every_module_is_tested_where_it_can_be_found() -> None:
    """In a file of its name, in one that imports it, or where docs/testing.md says."""
    files = {
        path: path.read_text(encoding="utf-8")
        for path in sorted((REPOSITORY / "rag_platform_tests").rglob("*.py"))
    }
    names, texts = {path.name for path in files}, "\n".join(files.values())
    rows = re.findall(
        r"^\| (`[a-z].*?) \| (.*) \|$",
        (REPOSITORY / "docs" / "testing.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    told = {
        module: _CODE.findall(cell) for modules, cell in rows for module in _CODE.findall(modules)
    }
    wrong = []
    for path in MODULES:
        module = ".".join(path.relative_to(REPOSITORY / "rag_platform").with_suffix("").parts)
        package, _, stem = f"rag_platform.{module}".rpartition(".")
        imported = (
            rf"{re.escape(package)}\.{stem}\b|from {re.escape(package)} import"
            rf" (\([^)]*|[^\n]*)\b{stem}\b"
        )
        if stem != "__init__" and f"test_{stem}.py" not in names and not re.search(imported, texts):
            there = [
                file
                for file in told.get(module, [])
                if (REPOSITORY / "rag_platform_tests" / file).is_file()
            ]
            wrong += [] if there else [f"{module}: no test file names it, nor docs/testing.md"]
    assert not wrong, "\n".join(wrong)


def test_the_readme_names_the_tools_that_there_are() -> None:
    contract = json.loads(
        (REPOSITORY / "rag_platform_tests" / "server" / "contract.json").read_text(encoding="utf-8")
    )
    assert set(re.findall(r"library_[a-z_]+", DOCUMENTS[0].read_text(encoding="utf-8"))) == set(
        contract["tools"]
    )


def test_the_readme_names_the_strategies_that_there_are() -> None:
    shipped = {path.stem for path in (SHIPPED / "strategies").glob("*.yaml")}
    named = set(
        re.findall(r"^\| `([a-z]+)` \|", DOCUMENTS[0].read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert named == shipped


def test_examples_in_docstrings_hold() -> None:
    named = [path for path in MODULES if ">>> " in path.read_text(encoding="utf-8")]
    assert len(named) > 20
    for path in named:
        name = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
        assert doctest.testmod(importlib.import_module(name)).failed == 0, name
