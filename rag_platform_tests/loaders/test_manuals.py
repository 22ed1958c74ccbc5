"""Manual pages as `man` prints them, read as Markdown."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rag_platform.loaders.manuals import is_manual, manual_blocks, manual_edits
from rag_platform.loaders.markdown import MarkdownLoader
from rag_platform.loaders.text import TextLoader
from rag_platform.normalisation.edits import apply_edits
from rag_platform.text.passages import units

PAGE = """\
LS(1)                  用户命令                  LS(1)

名称
       ls - 列出目录内容

概述
       ls [选项]... [文件]...
       ls --help

描述
       列出指定“文件”（默认为当前目录）的信息，按字
       母排序。 A line  of  English  that  fills  the
       page.

   选项
       -a, --all
              不要忽略以点号起始的条目

       -c     与   -lt   一起使用时：按照 ctime 排序；
              与 -l 一起使用时：按照名称排序
       -d     列出目录本身
       -L
       --dereference
              跟随符号链接：

              o      命令行中的

              auto   自动
       -empty 文件是空的
       -mtime n
              文件在 n 天之前修改过

       退出状态为 0。

coreutils                  2022年                  LS(1)
"""

MARKDOWN = """\
# LS(1)

## 名称

ls - 列出目录内容

## 概述

```
ls [选项]... [文件]...
ls --help
```

## 描述

列出指定“文件”（默认为当前目录）的信息，按字母排序。 A line of English that fills the page.

### 选项

**`-a, --all`**

不要忽略以点号起始的条目

**`-c`**

与 -lt 一起使用时：按照 ctime 排序；与 -l 一起使用时：按照名称排序

**`-d`**

列出目录本身

**`-L, --dereference`**

跟随符号链接：

- 命令行中的

- auto: 自动

**`-empty`**

文件是空的

**`-mtime n`**

文件在 n 天之前修改过

---

退出状态为 0。

coreutils 2022年 LS(1)
"""


def test_a_page_becomes_sections_options_and_paragraphs_without_fill() -> None:
    assert is_manual(PAGE)
    assert apply_edits(PAGE, manual_edits(PAGE)).text == MARKDOWN
    headings = [(b.level, b.title) for b in manual_blocks(PAGE) if b.kind == "heading"]
    assert headings == [(1, "LS(1)"), (2, "名称"), (2, "概述"), (2, "描述"), (3, "选项")]
    assert not is_manual("See LS(1).\n\nNAME\n       ls\n")


def test_blocks_hold_every_word_and_lead_to_the_bytes_and_lines_of_the_file(tmp_path: Path) -> None:
    raw = PAGE.replace("\n", "\r\n").encode()
    path = tmp_path / "ls"
    path.write_bytes(raw)
    facts = TextLoader().load(path, "ls")
    assert facts.summary.title == "LS(1)" and not MarkdownLoader().claims("ls", raw)
    held = b" ".join(raw[b.byte_start : b.byte_end] for b in facts.blocks)
    assert held.split() == raw.split()
    names = [
        b.line_start for b in facts.blocks if facts.text[b.start : b.end].strip() == "-a, --all"
    ]
    assert names == [16]


def test_the_text_after_the_last_option_does_not_belong_to_it() -> None:
    found = {MARKDOWN[unit.start : unit.end]: unit.headings for unit in units(MARKDOWN)}
    assert found["列出目录本身"][-1][1] == "`-d`"
    assert found["退出状态为 0。"][-1][1] == "选项"


@pytest.mark.parametrize(
    "body",
    ["       - x\n" * 4000, "       " + "漢。  " * 4000, f"       {'w' * 900}\n\n" * 2000],
    ids=["names", "gaps", "blocks"],
)
def test_a_long_page_takes_time_in_proportion(body: str) -> None:
    started = time.process_time()
    assert manual_blocks(f"LS(1)   Commands   LS(1)\n\nNAME\n{body}")
    assert time.process_time() - started < 5


def test_a_long_line_is_soon_known_to_be_no_title() -> None:
    started = time.process_time()
    assert not is_manual("a" * 100_000 + "(1) " + "a" * 100_000)
    assert time.process_time() - started < 2
