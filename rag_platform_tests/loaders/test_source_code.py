"""Comments and docstrings of source code become text below the name of what they describe."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rag_platform.config.ingestion import CleaningConfig
from rag_platform.loaders.source_code import LANGUAGES, source_edits
from rag_platform.loaders.text import TextLoader
from rag_platform.normalisation.edits import normalise

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
'''
SCHEMA = """\
// A pump.
message Pump {
  // Litres a minute.
  int32 rate = 1;
}
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
            "```python\n# twice\nreturn True\n```\n",
        ),
        (
            "pump.proto",
            SCHEMA,
            "## `Pump`\n\nA pump.\n\n```protobuf\nmessage Pump {\n```\n\n### `Pump.rate`\n\n"
            "Litres a minute.\n\n```protobuf\nint32 rate = 1;\n}\n```\n",
        ),
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
    held = "".join(text[block.start : block.end] for block in facts.blocks)
    assert "".join(held.split()) == "".join(text.split())


def test_long_lines_take_linear_time() -> None:
    began = time.process_time()
    for language in LANGUAGES:
        for part in ("# ", "/", '"""\n', "/*\n", "  a:\n", "(", "class ", "<", "<<EA\n", "`\n"):
            source_edits(part * (10_000 // len(part)), language)
    assert time.process_time() - began < 20
