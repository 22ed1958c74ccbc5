"""A made-up English and Chinese Markdown corpus of any size: the same seed gives the same files."""

from __future__ import annotations

import random
from pathlib import Path

_ENGLISH = (
    "router parcel lane chute scanner belt module table draft active label weight sensor motor speed limit shift operator console alarm "
    "handover drain overflow destination retry threshold camera barcode address station controller standby heartbeat failover backlog "
    "throughput latency window queue worker release version document section index vector query token answer citation evidence"
).split()
_CHINESE = (
    "路由 控制器 扫描站 格口 皮带 模块 面单 置信度 阈值 重试 告警 交接 停机 备机 心跳 超时 "
    "参数 默认值 目的地 件数 人工 补码 席位 版本 索引 向量 查询 引用"
).split()


def write_corpus(folder: Path, chunks: int, seed: int = 7) -> int:
    """Write Markdown files that cut into about `chunks` chunks of the shipped size; returns the number of files (ten chunks each)."""
    rng = random.Random(seed)
    files = max(1, chunks // 10)
    for number in range(files):
        path = folder / f"part-{number // 100:03d}" / f"note-{number:05d}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_document(number, rng), encoding="utf-8")
    return files


def _document(number: int, rng: random.Random) -> str:
    lines = [f"# Note {number}: {' '.join(rng.choices(_ENGLISH, k=3))}", ""]
    for section in range(5):
        lines += [f"## {section + 1} {' '.join(rng.choices(_ENGLISH, k=2))} NT-{number:05d}-{section}", ""]
        for _ in range(4):
            lines += [_chinese(rng) if rng.random() < 0.3 else _english(rng), ""]
        if section == 2:
            lines += ["| key | value |", "|---|---|", *(f"| {word} | {rng.randrange(10_000)} |" for word in rng.choices(_ENGLISH, k=6)), ""]
    return "\n".join(lines)


def _english(rng: random.Random) -> str:
    sentences = (" ".join(rng.choices(_ENGLISH, k=rng.randrange(8, 16))).capitalize() + "." for _ in range(4))
    return " ".join(sentences)


def _chinese(rng: random.Random) -> str:
    return "".join("".join(rng.choices(_CHINESE, k=rng.randrange(6, 12))) + "。" for _ in range(5))


def question(rng: random.Random) -> str:
    """A question in the corpus' words: mostly English, some Chinese, some with an identifier."""
    kind = rng.random()
    if kind < 0.2:
        return "".join(rng.choices(_CHINESE, k=3)) + "是多少？"
    words = " ".join(rng.choices(_ENGLISH, k=rng.randrange(3, 7)))
    return f"What is the {words} of NT-{rng.randrange(100):05d}-{rng.randrange(5)}?" if kind < 0.35 else f"How does the {words} work?"
