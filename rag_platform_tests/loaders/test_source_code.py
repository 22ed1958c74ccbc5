"""Comments and docstrings of source code become text below the name of what they describe."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rag_platform.config.ingestion import CleaningConfig
from rag_platform.loaders.languages import COMMENT_MARKS, find_language
from rag_platform.loaders.source_code import source_blocks, source_edits
from rag_platform.loaders.text import TextLoader
from rag_platform.normalisation.edits import normalise
from rag_platform.sectioners.sections import headings_of

VALUES = """\
# Licence of the chart.

pump:
  # -- How many pumps
  # run at once.
  count: 3
  # example: 5
valve: {}
"""
PUMP = '''\
class Pump:
    """A pump."""

    def start(self) -> bool:
        """Start it.

        :returns: whether it runs
        """
        # twice
        return True

    rate: int = 1
    """Litres."""
    text = (
        """Any."""
    )
'''
SCHEMA = """\
// A pump.
message Pump {
  // Litres a minute.
  int32 rate = 1;
}
"""
NUMPYDOC = """\
# ------
# Pumps.
# ------
def rates(x):
    \'\'\'List them.

    Parameters
    ----------
    x : str
        The pump.

    Example::

        if x:
            # twice

    \'\'\'
"""
TASKS = """\
jobs:
  steps:
    - name: Check the pump
      # In litres.
      rate: 3
    - uses: valve
      # Where.
      with: 4
---
kind: Valve
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "values.yaml",
            VALUES,
            "Licence of the chart.\n\n## `pump`\n\n```yaml\npump:\n```\n\n### `pump.count`\n\n"
            "How many pumps\nrun at once.\n\n```yaml\ncount: 3\n# example: 5\n```\n\n"
            "## `valve`\n\n```yaml\nvalve: {}\n```\n",
        ),
        (
            "pump.py",
            PUMP,
            "## `Pump`\n\n```python\nclass Pump:\n```\n\nA pump.\n\n### `Pump.start`\n\n```python\n"
            "def start(self) -> bool:\n```\n\nStart it.\n\n:returns: whether it runs\n\n"
            "```python\n# twice\nreturn True\n```\n\n### `Pump.rate`\n\n```python\n"
            'rate: int = 1\n```\n\nLitres.\n\n```python\ntext = (\n    """Any."""\n)\n```\n',
        ),
        (
            "pump.proto",
            SCHEMA,
            "## `Pump`\n\nA pump.\n\n```protobuf\nmessage Pump {\n```\n\n### `Pump.rate`\n\n"
            "Litres a minute.\n\n```protobuf\nint32 rate = 1;\n}\n```\n",
        ),
        (
            "rates.py",
            NUMPYDOC,
            "## `rates`\n\nPumps.\n\n```python\ndef rates(x):\n```\n\nList them."
            "\n\n**Parameters**\n\nx : str\n   The pump."
            "\n\nExample::\n\n    if x:\n        # twice\n",
        ),
        (
            "pump.rs",
            "/// A pump.\n///\n///\n///\n///\n"
            "/// # Use\n/// ```\n/// # hidden\n///     a\n/// ```\n"
            "fn a() {}\n",
            "## `a`\n\nA pump.\n\n**Use**\n\n```\n# hidden\n    a\n```\n\n```rust\n"
            "fn a() {}\n```\n",
        ),
        (
            "tasks.yml",
            TASKS,
            "## `jobs`\n\n```yaml\njobs:\n```\n\n### `jobs.steps`\n\n```yaml\nsteps:\n```\n\n"
            "#### `jobs.steps.Check the pump`\n\n```yaml\n- name: Check the pump\n```\n\n"
            "##### `jobs.steps.Check the pump.rate`\n\nIn litres.\n\n```yaml\nrate: 3\n"
            "- uses: valve\n```\n\n#### `jobs.steps.with`\n\nWhere.\n\n```yaml\n"
            "with: 4\n---\n```\n\n## `kind`\n\n```yaml\nkind: Valve\n```\n",
        ),
        (
            "pump.c",
            "/*\n * Starts the pump.\n * @param rate litres\n */\nint start(int rate) {\n}\n\n"
            "} // end namespace pumps\n",
            "## `start`\n\nStarts the pump.\n\n@param rate litres\n\n```c\nint start(int rate) {\n"
            "}\n\n} // end namespace pumps\n```\n",
        ),
        (
            "small.py",
            "class Small(Pump):\n    # Litres.\n    rate = 1\n",
            "## `Small`\n\n```python\nclass Small(Pump):\n```\n\n### `Small.rate`\n\nLitres.\n\n"
            "```python\nrate = 1\n```\n",
        ),
        ("cut.py", "\n\n    a = 1\n    b = 2\n", "```python\na = 1\nb = 2\n```\n"),
        (
            "run.sh",
            "#!/bin/sh\n# Install the pump.\nset -e\n",
            "```shell\n#!/bin/sh\n```\n\nInstall the pump.\n\n```shell\nset -e\n```\n",
        ),
    ],
)
def test_a_comment_stands_below_the_name_of_what_it_describes(
    tmp_path: Path, name: str, text: str, expected: str
) -> None:
    """The facts keep the file, and their blocks hold all of it."""
    path = tmp_path / name
    path.write_text(text)
    facts = TextLoader().load(path, name)
    assert facts.text == text
    assert normalise(facts, (), CleaningConfig()).text == expected
    assert "".join(text[it.start : it.end] for it in facts.blocks) == text.rstrip()


@pytest.mark.parametrize(
    ("name", "line", "title"),
    [
        ("a.java", "private final Map<String, List<Integer>> rates = new HashMap<>();", "rates"),
        ("a.java", "public static final class Pump<T> extends Base {", "Pump"),
        ("a.java", "static List<String> split(String type) {", "split"),
        ("a.h", "extern const char *read_rate(struct pump *input); /* input type */", "read_rate"),
        ("a.h", "#define RATE 10", "RATE"),
        ("a.c", "static int\nread_rate(void)", "read_rate"),
        ("a.cpp", "JPValue Pump::start(int rate)", "Pump::start"),
        ("a.cpp", "template <class T>\nclass Pump final : public Base<T> {", "Pump"),
        ("a.cpp", "namespace pumps {", "pumps"),
        ("a.h", "const size_type rate;", "rate"),
        ("a.h", "typedef struct {", ""),
        ("a.h", "typedef int (*pump_rate)(void *pump);", "pump_rate"),
        ("a.h", "API int PUMP_API(start_pump) (", "start_pump"),
        ("a.mk", "$(PUMP): $(VALVE)", ""),
        ("a.dockerfile", "RUN make", ""),
        ("a.dockerfile", "ARG PUMP=1", "PUMP"),
        ("a.js", "static async start (rate) {", "start"),
        ("a.ts", "public: boolean;", "public"),
        ("a.ts", "boolean (rate: unknown): boolean", "boolean"),
        ("a.proto", "bool public = 1;", "public"),
        ("a.graphql", "template: String!", "template"),
        ("a.go", "const (", ""),
        ("a.js", "const { rate } = options", ""),
        ("a.sql", "COMMENT ON COLUMN pumps.rate IS 'litres';", "pumps.rate"),
        ("a.sql", "CREATE OR REPLACE FUNCTION start_pump(rate int)", "start_pump"),
        ("a.sql", "GRANT SELECT ON pumps TO PUBLIC;", ""),
        ("a.rs", "pub(crate) const fn rate() -> u8 {", "rate"),
        ("a.ps1", "function Get-Rate {", "Get-Rate"),
        ("a.go", "func (p *Pump) Start(rate int) {", "Start"),
        ("a.rs", "impl<T: Into<A>> From<T> for Pump<T> {", "Pump"),
        ("a.rs", "impl Pump {", "Pump"),
        ("a.rs", "impl Display for Pump {", "Pump"),
        ("a.rs", "impl<T> Start for Pump<T> {", "Pump"),
        ("a.c", "255, 62, 63,", ""),
        ("a.cpp", "inline std::shared_ptr<pumps::pool> pump_pool()", "pump_pool"),
        ("a.sql", "create function :PUMPS.start_pump(rate int)", "PUMPS.start_pump"),
        ("a.py", f"{'x' * 900} = 1", "x" * 200),
    ],
)
def test_a_definition_is_called_by_its_name(name: str, line: str, title: str) -> None:
    """And not by a word before it, or in a comment behind it."""
    language = find_language(name)
    hashed = ("python", "powershell", "graphql", "makefile", "dockerfile")
    begin, end = ("# ", "") if language in hashed else ("/* ", " */")
    blocks = source_blocks(f"\n{begin}A comment.{end}\n{line}\n", language)
    assert [block.title for block in blocks if block.kind == "heading"] == [title][: bool(title)]


@pytest.mark.parametrize(
    ("language", "text", "code"),
    [
        ("python", 'def f():\n    return """\n# a\nb = 1\n"""\n', "# a\nb = 1"),
        ("javascript", "const page = `\n// a\nb = 1\n`\n", "// a\nb = 1"),
        ("shell", "cat > a.ini <<EOF\n# a\nb = 1\nEOF\nls\n", "# a\nb = 1"),
        ("yaml", "run: |\n  # a\n  b: 1\non: push\n", "# a\n  b: 1"),
        ("kotlin", 'val f =\n"""\n// a\nb = 1\n"""\n', "// a\nb = 1"),
        ("python", "def f():\n    a = 1\n    # b\n    c = 2\n", "# b\n    c = 2"),
        ("python", "def f(\n    a,\n):\n    b = a  # b\n    # c\n    d = 1\n", "# c\n    d = 1"),
        ("python", "def f(namespace=1):\n    b = 1  # b\n    # c\n    d = 1\n", "# c\n    d"),
        ("ruby", "def f\n  b = 1 # b\n  # c\n  d = 1\nend\n", "# c\n  d = 1"),
    ],
)
def test_strings_and_the_inside_of_functions_are_code(language: str, text: str, code: str) -> None:
    """Whatever their lines look like."""
    blocks = source_blocks(text, language)
    assert [code in text[it.start : it.end] for it in blocks if it.kind == "code"].count(True) == 1
    assert not any(it.kind == "paragraph" for it in blocks)


@pytest.mark.parametrize(
    ("language", "text", "titles"),
    [
        ("go", "type Pump struct {\n\tRate int // litres\n\tSize int\n}\n", ["Pump", "Pump.Rate"]),
        ("c", "struct pump {\n  int rate;  /* litres */\n};\n", ["pump", "pump.rate"]),
        ("python", "RATE = 1  # litres\nstart(RATE)  # now\n", ["RATE"]),
        ("python", "A = 1  # noqa: E501\nB = 2  # type: ignore\nC = 3  #: litres\n", ["C"]),
        ("yaml", "a:\n  uses: b/c@0a1b # v4.1\n  run: d # Start it\n", ["a", "a.run"]),
        (
            "sql",
            "SELECT rate, -- litres\n  id\nLEFT JOIN b -- b\nAND c = 1 -- d\nLIMIT 3 -- e\n",
            [],
        ),
        ("sql", "CREATE TABLE a (\n  offset int, -- litres\n  b int\n);\n", ["a", "a.offset"]),
        ("groovy", "def pump = [\n  rate: 1, // litres\n]\n", ["pump", "pump.rate"]),
        ("c", "int t[] = {\n  255, 62,  // 0..1\n  3, 255,  // 2..3\n};\n", []),
        ("makefile", "pump: valve ## Start it\n\trun # now\nvalve:\n", ["pump", "valve"]),
        ("yaml", "pump:\n  size: 1\n  rate: 3 # litres\n", ["pump", "pump.rate"]),
        ("rust", "impl Pump {\n    /// Start.\n    fn start() {}\n}\n", ["Pump.start"]),
        ("ruby", "module Pumps\n  # A pump.\n  class Pump\n  end\nend\n", ["Pumps.Pump"]),
        ("cpp", "// Pumps.\nnamespace pumps {\n}\n", ["pumps"]),
    ],
)
def test_what_has_words_behind_it_is_described_and_what_only_holds_others_is_not(
    language: str, text: str, titles: list[str]
) -> None:
    blocks = source_blocks(text, language)
    assert [it.title for it in blocks if it.kind == "heading"] == titles
    assert {it.level for it in blocks if it.title.count(".") == 0 and it.title} <= {2}


def test_a_definition_on_the_first_line_is_a_section(tmp_path: Path) -> None:
    path = tmp_path / "pump.py"
    path.write_text(PUMP)
    facts = TextLoader().load(path, path.name)
    headings = headings_of(facts, normalise(facts, (), CleaningConfig()))
    assert [it[1:] for it in headings] == [(2, "Pump"), (3, "Pump.start"), (3, "Pump.rate")]


def test_long_lines_take_linear_time() -> None:
    began = time.process_time()
    for language in COMMENT_MARKS:
        for part in (
            "# ",
            "/",
            '"""\n',
            "/*\n",
            "  a:\n",
            "(",
            "class ",
            "<",
            "<<EA\n",
            "`\n",
            "a::",
            "a<b ",
            "// ----",
            "# ```\n",
            "impl<",
            "a # ",
        ):
            source_edits(part * (10_000 // len(part)), language)
    assert time.process_time() - began < 20
