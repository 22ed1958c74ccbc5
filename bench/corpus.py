"""A made-up English and Chinese Markdown corpus of any size: the same seed gives the same files."""

from __future__ import annotations

import math
import random
from pathlib import Path

from rag_platform.config.settings import Settings, Strategy
from rag_platform.documents.previewing import preview

SAMPLE = 100  # files that are really cut; their mean tells how many more are needed

_ENGLISH = (
    "router parcel lane chute scanner belt module table draft active label weight sensor motor"
    " speed limit shift operator console alarm handover drain overflow destination retry threshold"
    " camera barcode address station controller standby heartbeat failover backlog throughput"
    " latency window queue worker release version document section index vector query token answer"
    " citation evidence"
).split()
_CHINESE = (
    "路由 控制器 扫描站 格口 皮带 模块 面单 置信度 阈值 重试 告警 交接 停机 备机 心跳 超时 "
    "参数 默认值 目的地 件数 人工 补码 席位 版本 索引 向量 查询 引用"
).split()


def write_corpus(
    folder: Path,
    chunks: int,
    strategy: Strategy,
    settings: Settings,
    *,
    seed: int = 7,
    sections: int = 5,
) -> int:
    """Write Markdown files that the strategy cuts into `chunks` chunks, within a percent or a
    section; returns how many files.
    """
    rng = random.Random(seed)
    files = cut = 0
    wanted = math.inf
    while files < wanted:
        path = folder / f"part-{files // 100:03d}" / f"note-{files:05d}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = _document(files, rng, sections)
        path.write_text(text, encoding="utf-8")
        files += 1
        if files > SAMPLE:
            continue
        while (
            cut + (made := len(preview(path, strategy, settings).work.chunks)) > chunks
            and "\n## " in text
        ):
            text = text.rpartition("\n## ")[0]  # the last one is as long as is left
            path.write_text(text, encoding="utf-8")
        cut += made
        wanted = (
            files if cut >= chunks else round(files * chunks / cut) if files == SAMPLE else math.inf
        )
    return files


def _document(number: int, rng: random.Random, sections: int) -> str:
    lines = [f"# Note {number}: {' '.join(rng.choices(_ENGLISH, k=3))}", ""]
    for section in range(sections):
        lines += [
            f"## {section + 1} {' '.join(rng.choices(_ENGLISH, k=2))} NT-{number:05d}-{section}",
            "",
        ]
        for _ in range(4):
            lines += [_chinese(rng) if rng.random() < 0.3 else _english(rng), ""]
        if section == 2:
            lines += [
                "| key | value |",
                "|---|---|",
                *(f"| {word} | {rng.randrange(10_000)} |" for word in rng.choices(_ENGLISH, k=6)),
                "",
            ]
    return "\n".join(lines)


def _english(rng: random.Random) -> str:
    sentences = (
        " ".join(rng.choices(_ENGLISH, k=rng.randrange(8, 16))).capitalize() + "." for _ in range(4)
    )
    return " ".join(sentences)


def _chinese(rng: random.Random) -> str:
    return "".join("".join(rng.choices(_CHINESE, k=rng.randrange(6, 12))) + "。" for _ in range(5))


def question(rng: random.Random) -> str:
    """A question in the corpus' words: mostly English, some Chinese, some with an identifier."""
    kind = rng.random()
    if kind < 0.2:
        return "".join(rng.choices(_CHINESE, k=3)) + "是多少？"
    words = " ".join(rng.choices(_ENGLISH, k=rng.randrange(3, 7)))
    return (
        f"What is the {words} of NT-{rng.randrange(100):05d}-{rng.randrange(5)}?"
        if kind < 0.35
        else f"How does the {words} work?"
    )
