"""Jupyter notebooks: cells and outputs as Markdown, each block proved against the JSON."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rag_platform.errors import DocumentError
from rag_platform.ir import Facts
from rag_platform.loaders.markup.notebooks import NotebookLoader
from rag_platform_tests.conftest import PICTURE

PNG = base64.b64encode(PICTURE).decode()
BOOK: dict[str, Any] = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {"kernelspec": {"language": "python"}, "language_info": {"name": "python"}},
    "cells": [
        {
            "cell_type": "markdown",
            "metadata": {},
            "source": ["# Sales 销售\n", "\n", "Totals by *month*.\n", "\n", "- one\n", "- two"],
        },
        {
            "cell_type": "code",
            "metadata": {},
            "source": "print(total)\n",
            "execution_count": 1,
            "outputs": [
                {
                    "output_type": "stream",
                    "name": "stdout",
                    "text": ["42 EUR\n", "\x1b[31mred\x1b[0m\n"],
                },
                {
                    "output_type": "execute_result",
                    "metadata": {},
                    "data": {"text/plain": "   a\n0  1", "text/html": "<table></table>"},
                },
                {
                    "output_type": "display_data",
                    "metadata": {},
                    "data": {"image/png": PNG, "text/plain": "<Figure>"},
                },
            ],
        },
        {"cell_type": "markdown", "metadata": {}, "source": "## Open\n\n```\ncode"},
        {
            "cell_type": "code",
            "metadata": {},
            "source": "1/0",
            "outputs": [
                {
                    "output_type": "error",
                    "ename": "Zero",
                    "evalue": "by zero",
                    "traceback": ["\x1b[0;31mZeroDivisionError\x1b[0m"],
                },
                {"output_type": "display_data", "data": {"text/html": ["<p>only <b>page</b></p>"]}},
            ],
        },
        {"cell_type": "raw", "metadata": {}, "source": ""},
    ],
}
TEXT = """\
# Sales 销售

Totals by *month*.

- one
- two

```python
print(total)
```

```
42 EUR
red
```

```
   a
0  1
```

![](data:image/png)

## Open

```
code
```

```python
1/0
```

```
ZeroDivisionError
```

```
only page
```
"""


def load(tmp_path: Path, book: Any) -> tuple[Path, Facts]:
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps(book), encoding="utf-8")
    return path, NotebookLoader().load(path, "a.ipynb")


def test_cells_and_outputs_read_as_markdown(tmp_path: Path) -> None:
    path, facts = load(tmp_path, BOOK)
    assert facts.text == TEXT
    assert [(block.kind, block.locator) for block in facts.blocks][:8] == [
        ("heading", "cell=1;lines=1-1"),
        ("paragraph", "cell=1;lines=3-3"),
        ("list", "cell=1;lines=5-6"),
        ("code", "cell=2"),
        ("code", "cell=2;output=1"),
        ("code", "cell=2;output=2"),
        ("paragraph", "cell=2;output=3"),
        ("heading", "cell=3;lines=1-1"),
    ]
    assert [ref.origin_ref for ref in facts.media] == [f"data:image/png;base64,{PNG}"]
    assert (facts.summary.title, facts.summary.metadata) == (
        "Sales 销售",
        {"language": "python", "cells": 5},
    )
    assert NotebookLoader().verify_blocks(path, facts.text, facts.blocks) == {}


def test_a_forged_text_or_place_is_not_proved(tmp_path: Path) -> None:
    path, facts = load(tmp_path, BOOK)
    for number, block in enumerate(facts.blocks):
        if "data:" in facts.text[block.start : block.end]:
            continue
        forged = f"{facts.text[: block.end - 4]}X{facts.text[block.end - 3 :]}"
        assert NotebookLoader().verify_blocks(path, forged, [block]), block
        other = facts.blocks[number - 1].locator
        assert NotebookLoader().verify_blocks(path, facts.text, [replace(block, locator=other)]), (
            block
        )
    assert NotebookLoader().verify_blocks(
        path, facts.text, [replace(facts.blocks[0], locator="cell=99")]
    )


def test_a_notebook_of_version_3(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "heading", "level": 2, "source": "Old"},
        {"cell_type": "code", "input": "x", "outputs": [{"output_type": "pyout", "text": ["7"]}]},
    ]
    path, facts = load(tmp_path, {"nbformat": 3, "metadata": {}, "worksheets": [{"cells": cells}]})
    assert facts.text == "## Old\n\n```\nx\n```\n\n```\n7\n```\n"
    assert NotebookLoader().verify_blocks(path, facts.text, facts.blocks) == {}


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("{", "broken_file"),
        ("[1]", "broken_file"),
        ('{"cells": [1]}', "broken_file"),
        ('{"cells": []}', "empty_file"),
        ("[" * 100_000, "broken_file"),
        (
            '{"cells": ' + json.dumps([{"cell_type": "raw", "source": "x"}] * 20_001) + "}",
            "too_large",
        ),
    ],
)
def test_what_is_no_notebook_is_refused(tmp_path: Path, content: str, code: str) -> None:
    (tmp_path / "a.ipynb").write_text(content, encoding="utf-8")
    with pytest.raises(DocumentError) as caught:
        NotebookLoader().load(tmp_path / "a.ipynb", "a.ipynb")
    assert caught.value.code == code and "Error" not in caught.value.message


def test_a_long_output_is_cut_and_told(tmp_path: Path) -> None:
    cell = {
        "cell_type": "code",
        "source": "log()",
        "outputs": [{"output_type": "stream", "text": "line of a log\n" * 5000}],
    }
    path, facts = load(tmp_path, {"cells": [cell]})
    assert facts.summary.warnings == (
        "output 1 of cell 1 has 70000 characters; the first 50000 were read",
    )
    assert NotebookLoader().verify_blocks(path, facts.text, facts.blocks) == {}
