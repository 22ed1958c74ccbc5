"""The language of a program or its settings, by the name of the file."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

LANGUAGES = {
    suffix: language
    for line in """
    python .py .pyi; javascript .js .mjs .cjs .jsx; typescript .ts .tsx; java .java;
    kotlin .kt; scala .scala; go .go; rust .rs; c .c .h; cpp .cpp .cc .hpp; csharp .cs;
    ruby .rb; php .php; swift .swift; shell .sh .bash .zsh; powershell .ps1; batch .bat;
    sql .sql; r .r; lua .lua; perl .pl; yaml .yaml .yml; toml .toml; json .json .jsonl .ndjson
    .jsonc .json5;
    ini .ini .cfg .conf .properties; xml .xml; css .css .scss; protobuf .proto; graphql
    .graphql; terraform .tf; dockerfile .dockerfile; makefile .mk; cmake .cmake; vue
    .vue
    """.split(";")
    for language, *suffixes in [line.split()]
    for suffix in suffixes
}
BARE_NAMES = {"jenkinsfile": "groovy", "rakefile": "ruby", "gemfile": "ruby"} | {
    name: name for name in ("dockerfile", "makefile")
}
# say which variables a program reads; a `.env` itself holds secrets
ENVIRONMENTS = frozenset(f".env.{it}" for it in ("example", "sample", "template", "dist"))
BARE_NAMES |= dict.fromkeys(ENVIRONMENTS, "shell")
HASH = re.compile(r"#++:?(?![!\[\w])[ \t]*(?:-- )?")  # in Helm `# -- words`
SLASHES = re.compile(r"//[/!]*+[ \t]*")
DASHES = re.compile(r"--+[ \t]*")
COMMENT_MARKS = {  # of a line that is a comment, by language
    language: mark
    for languages, mark in (
        ("python|shell|powershell|ruby|perl|r|yaml|makefile|dockerfile", HASH),
        ("terraform|graphql", HASH),
        ("javascript|typescript|java|kotlin|scala|groovy|go|rust|c|cpp|csharp", SLASHES),
        ("php|swift|protobuf", SLASHES),
        ("sql|lua", DASHES),
    )
    for language in languages.split("|")
}


def suffix_of(filename: str) -> str:
    """The lower-case suffix of a file name; a leading dot does not start one."""
    return PurePosixPath(filename.replace("\\", "/")).suffix.lower()


def find_language(filename: str) -> str:
    """The language of a file; empty for prose and for what is unknown."""
    name = PurePosixPath(filename.replace("\\", "/")).name.lower()
    return LANGUAGES.get(suffix_of(filename)) or BARE_NAMES.get(name, "")
