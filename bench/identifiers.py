"""Exact things: codes that differ in one character, phrases among the same words in another order,
Chinese names that look alike.

    python bench/identifiers.py [--codes 5000] [--phrases 500] [--names 500] [--lexical tantivy
    fts5] [--json FILE]

Every code, phrase and name stands in one short text. Each is asked for, alone and within a
sentence, in the modes hybrid and sparse, and counts when the first hit is its own text. The library
is built by the program's own functions: strategy `fast` with vectors by feature hashing, so the
dense retriever helps nobody, and a dictionary of half the names. What fails is shown with the
stage that lost it: the words (the sparse retriever has another first), the fusion or the
reranker.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rag_platform.answering.engine import answer
from rag_platform.config.settings import load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ir import QueryRequest
from rag_platform.ledger.hiding import LedgerView
from rag_platform.ledger.ledger import open_ledger
from rag_platform.releases.publishing import build_candidate, publish_candidate
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store
from rag_platform.workspace import Workspace

REPOSITORY = Path(__file__).resolve().parent.parent
MODES = ("hybrid", "sparse")
FAMILY = 25  # codes made from one by changing one character
TEXTS_A_FILE = 100
SHAPES = (
    "PPR-90871",
    "SKU_4711-A",
    "v1.2.3-rc4",
    "0x1F3A9C",
    "华为P50-Pro",
    "GB/T 19001-2016",
    "foo.bar_baz",
    "A1B2C3D4",
    "ISO9001:2015",
    "型号XK7-三代",
)
WORDS = (
    "parcel lane chute scanner belt module table draft label weight sensor motor speed limit shift"
    " operator console alarm drain overflow threshold camera barcode address station controller"
    " standby backlog window queue worker section answer"
).split()
FILLER = (
    "while the first crew moved every crate toward that old hall beside our yard and someone wrote"
    " down how much each had cost before lunch"
).split()
FILLER_ZH = (
    "我们 昨天 已经 完成 并且 经过 确认 之后 再次 进行 检查 结果 良好 没有 问题 大家 都很 满意"
).split()
CHINESE = (
    "路由 控制器 扫描站 格口 皮带 模块 面单 阈值 重试 告警 交接 停机 备机 心跳 超时 参数 件数"
    " 人工 席位".split()
)
HAN = (
    "恒瑞科技华夏天成宏达金源永信博通远景新安東海云山明德立方中联环宇星辰光启盛泰和丰凯旋龙腾飞跃"
    "鼎峰诚正嘉"
)
_CLASSES = (
    "ABCDEFGHJKLMNPQRSTUVWXYZ",
    "abcdefghijklmnopqrstuvwxyz",
    "0123456789",
    "一二三四五六七八九十",
    "华中大小东西南北为",
)


@dataclass(frozen=True)
class Thing:
    """What is asked for, and a text that holds it."""

    kind: str
    asked: str
    questions: tuple[str, ...]
    text: str
    # what tells a right first hit: the number of its only text, or the phrase or name itself
    own: str


def codes(count: int, rng: random.Random) -> list[Thing]:
    """Codes of every shape, in families of which any two differ in at most two characters, and from
    their first in one.
    """
    found: dict[str, None] = {}
    while len(found) < count:
        base = _varied(rng.choice(SHAPES), rng, changes=4)
        family = {_varied(base, rng, changes=1) for _ in range(FAMILY)} | {base}
        found.update(dict.fromkeys(code for code in sorted(family) if code.lower() not in found))
    chosen = list(found)[:count]
    things = []
    for number, code in enumerate(chosen):
        chinese = rng.random() < 0.4
        mark = f"note {number:05d}."
        text = (
            f"{_chinese(rng)}{code}，{_chinese(rng)}。{mark}"
            if chinese
            else f"{_english(rng)} {code} {_english(rng)}. {mark}"
        )
        things.append(
            Thing(
                "code",
                code,
                (code, f"{code} 在哪里用？" if chinese else f"Where is {code} used?"),
                text,
                mark,
            )
        )
    return things


def _varied(code: str, rng: random.Random, changes: int) -> str:
    """The code with letters and digits exchanged for others of their kind."""
    letters = list(code)
    for _ in range(changes):
        place = rng.choice(
            [n for n, letter in enumerate(letters) if any(letter in kind for kind in _CLASSES)]
        )
        kind = next(kind for kind in _CLASSES if letters[place] in kind)
        letters[place] = rng.choice([letter for letter in kind if letter != letters[place]])
    return "".join(letters)


def phrases(count: int, rng: random.Random) -> list[Thing]:
    """Phrases of 2 to 5 words, each beside texts that hold the same words in another order."""
    found: dict[tuple[str, ...], None] = {}
    while len(found) < count:
        source = CHINESE if rng.random() < 0.4 else WORDS
        words = tuple(rng.sample(source, rng.randint(2, 5)))
        if not any(set(words) == set(other) for other in found):
            found[words] = None
    things = []
    for number, words in enumerate(found):
        chinese = words[0] in CHINESE
        joint, about = ("", _chinese) if chinese else (" ", _english)
        phrase, mark = joint.join(words), f"entry {number:05d}."
        text = f"{about(rng)}{joint}{phrase}{joint}{about(rng)}. {mark}"
        things.append(
            Thing(
                "phrase",
                phrase,
                (f'"{phrase}"', f"“{phrase}”是什么？" if chinese else f'What is the "{phrase}"?'),
                text,
                phrase,
            )
        )
        for turn in (words[::-1], words[1:] + words[:1])[: 2 if len(words) > 2 else 1]:
            apart = joint.join(turn)
            things.append(
                Thing("distractor", "", (), f"{apart}{joint}{about(rng)}{joint}{apart}.", "")
            )
    return things


def names(count: int, rng: random.Random) -> list[Thing]:
    """Chinese names of 3 to 5 characters in families that differ in one, within running text; each
    beside its characters turned round.
    """
    found: dict[str, None] = {}
    while len(found) < count:
        base = "".join(rng.choices(HAN, k=rng.randint(3, 5)))
        place = rng.randrange(len(base))
        found.update(
            dict.fromkeys(
                f"{base[:place]}{other}{base[place + 1 :]}" for other in rng.sample(HAN, 6)
            )
        )
    things = []
    for number, name in enumerate(list(found)[:count]):
        mark = f"记录 {number:05d}。"
        things.append(
            Thing(
                "name",
                name,
                (name, f"{name}的地址在哪里？"),
                f"{_chinese(rng)}{name}{_chinese(rng)}。{mark}",
                name,
            )
        )
        turned = name[::-1]
        things.append(Thing("distractor", "", (), f"{turned}{_chinese(rng)}{turned}。", ""))
    return things


def _english(rng: random.Random) -> str:
    return " ".join(rng.choices(FILLER, k=rng.randint(4, 12)))


def _chinese(rng: random.Random) -> str:
    return "".join(rng.choices(FILLER_ZH, k=rng.randint(3, 8)))


# --- the library --------------------------------------------------------------------------------


@contextmanager
def built(
    root: Path, things: Sequence[Thing], lexical: str, dictionary: Sequence[str]
) -> Iterator[Library]:
    """A library that holds a chunk for every text."""
    config = root / "config"
    shutil.copytree(REPOSITORY / "rag_platform" / "defaults", config)
    strategy = yaml.safe_load((config / "strategies" / "fast.yaml").read_text(encoding="utf-8"))
    strategy["embedding"] = {"provider": "hashing"}
    strategy["sectioner"] = {
        "provider": "markdown_headings",
        "options": {"max_section_level": 2, "min_section_chars": 0},
    }
    strategy["lexical"] = {"provider": lexical, "options": {"dictionary": list(dictionary)}}
    (config / "strategies" / "bench.yaml").write_text(
        yaml.safe_dump(strategy, allow_unicode=True), encoding="utf-8"
    )
    os.environ |= {
        "RAG_CONFIG": str(config),
        "RAG_HOME": str(root / "home"),
        "RAG_STRATEGY": "bench",
    }
    settings = load_settings({"caches": {"retrievals": 0, "query_vectors": 0}})
    store = Store(settings.home)
    ledger = open_ledger(store)
    workspace = Workspace(
        settings=settings, strategy=load_strategy(settings), store=store, ledger=ledger
    )
    folder = root / "documents"
    folder.mkdir()
    for start in range(0, len(things), TEXTS_A_FILE):
        sections = (
            f"## Part {start + n}\n\n{thing.text}\n"
            for n, thing in enumerate(things[start : start + TEXTS_A_FILE])
        )
        (folder / f"notes-{start:06d}.md").write_text("\n".join(sections), encoding="utf-8")
    reception = receive([folder], "bench", workspace, ReceiveOptions())
    ingest_versions([ledger.version(item) for item in reception.to_process], workspace)
    manifest, checks = build_candidate("bench", workspace)
    assert all(check.passed for check in checks), checks
    publish_candidate("bench", manifest.release_id, workspace)
    library = Library(settings, store, ledger=LedgerView(store))
    try:
        yield library
    finally:
        library.close()
        ledger.close()


def first(library: Library, question: str, mode: str, *, rerank: bool = True) -> str:
    """The text of the first hit, empty without one."""
    request = QueryRequest(
        question, namespace="bench", top_k=1, mode=mode, answer=False, rerank=rerank
    )
    hits = answer(library, request).hits
    return hits[0].chunk_text if hits else ""


def lost_by(library: Library, thing: Thing, question: str, mode: str) -> str:
    """The first stage after which the thing's own text is not the first: words, fusion or
    rerank.
    """
    if thing.own not in first(library, question, "sparse", rerank=False):
        return "words"
    return "fusion" if thing.own not in first(library, question, mode, rerank=False) else "rerank"


# --- the run ------------------------------------------------------------------------------------


def measure(library: Library, things: Sequence[Thing]) -> list[dict[str, Any]]:
    """A row for each kind, form of question and mode."""
    rows = []
    for kind in ("code", "phrase", "name"):
        asked = [thing for thing in things if thing.kind == kind]
        for form, label in enumerate(("alone", "in a sentence")):
            for mode in MODES:
                started = time.perf_counter()
                wrong = [
                    thing
                    for thing in asked
                    if thing.own not in first(library, thing.questions[form], mode)
                ]
                seconds = time.perf_counter() - started
                stages = Counter(
                    lost_by(library, thing, thing.questions[form], mode) for thing in wrong
                )
                rows.append(
                    {
                        "kind": kind,
                        "asked": label,
                        "mode": mode,
                        "questions": len(asked),
                        "first": len(asked) - len(wrong),
                        "lost_by": dict(stages),
                        "ms": round(1000 * seconds / max(1, len(asked)), 2),
                        "examples": [thing.questions[form] for thing in wrong[:5]],
                    }
                )
    return rows


def main() -> None:
    """Print a table for each word index; exit 1 when anything exact was not first."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in (("codes", 5000), ("phrases", 500), ("names", 500)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lexical", nargs="+", default=["tantivy"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: dict[str, list[dict[str, Any]]] = {}
    for lexical in options.lexical:
        rng = random.Random(11)
        things = [
            *codes(options.codes, rng),
            *phrases(options.phrases, rng),
            *names(options.names, rng),
        ]
        rng.shuffle(things)
        dictionary = sorted(thing.asked for thing in things if thing.kind == "name")
        with (
            tempfile.TemporaryDirectory() as folder,
            built(Path(folder), things, lexical, dictionary) as library,
        ):
            results[lexical] = measure(library, things)
        print(
            f"\n"
            f"{lexical}: {len(things)} texts\n"
            f"\n"
            f"| what | asked | mode | first | share | lost by | ms |\n"
            "|---|---|---|---|---|---|---|"
        )
        for row in results[lexical]:
            lost = ", ".join(f"{stage} {number}" for stage, number in row["lost_by"].items()) or "-"
            count, share = (
                f"{row['first']}/{row['questions']}",
                100 * row["first"] / max(1, row["questions"]),
            )
            print(
                f"| {row['kind']} | {row['asked']} | {row['mode']} | {count} | {share:.2f} % |"
                f" {lost} | {row['ms']} |"
            )
            if row["examples"]:
                print(f"    {row['examples']}")
    if options.json:
        options.json.write_text(json.dumps(results, ensure_ascii=False, indent=1), encoding="utf-8")
    if any(row["first"] < row["questions"] for rows in results.values() for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
