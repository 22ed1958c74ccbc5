"""The catalogue: what errors and the command line say, in Chinese."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

import rag_platform
from rag_platform import errors
from rag_platform.cli.main import EXAMPLES, main
from rag_platform.messages import catalogue, terminal_language, translate_filled

PACKAGE = Path(rag_platform.__file__).parent
_PLACE = re.compile(r"\{(\d*|#|~|_)\}")
_VARIABLES = ("RAG_LANG", "LC_ALL", "LC_MESSAGES", "LANG")
# states of the program's own arrays that no input leads to: who meets one reports it in English
INVARIANTS = {
    "vectors {} do not fit {} ids and a matrix {}",
    "chunk {} would have two vectors",
    "fresh vectors {} or {} ids do not belong to a matrix {}; {}",
    "{} ids for a matrix {}; {}",
    "{} ids for {} vectors",
    "the query vector has {} numbers, the index {}; or it is not finite",
    "chunk {} has no vector in this release",
    "the embedder returned an array {} for {} texts of dimension {}",
}


def template(node: ast.expr) -> str | None:
    """The text of a literal with `{}` for its places; None for anything else."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)
    return None


@cache
def templates() -> list[tuple[str, str]]:
    """(where, template) of every error that the code raises or makes."""
    return list(_templates())


def _templates() -> Iterator[tuple[str, str]]:
    kinds = {
        name
        for name, item in vars(errors).items()
        if inspect.isclass(item) and issubclass(item, errors.RagError)
    }
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "Error(" in text else ():
            if not (isinstance(node, ast.Call) and node.args):
                continue
            if ast.unparse(node.func).rpartition(".")[2] in kinds:
                message = template(node.args[0])
                # places alone: the message comes from elsewhere
                if message is not None and re.search("[a-z]{2}", message):
                    yield f"{path.relative_to(PACKAGE)}:{node.lineno}", message


def given_messages() -> Iterator[tuple[str, str]]:
    """(where, text) of each literal sentence given to a function that makes an error of it."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}
    makers = {
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and ast.unparse(node.returns or node).endswith("Error")
    } - {"error"}  # that of a log
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in makers:
                for text in filter(None, map(template, node.args)):
                    if re.search("[a-z]{2,} [a-z]{2,}", text):
                        text = text.removesuffix("{}").strip()
                        yield f"{path.relative_to(PACKAGE)}:{node.lineno}", text


def test_every_message_that_a_function_makes_an_error_of_has_its_chinese() -> None:
    known, found = re.sub("{[#_]}", "{}", "\n".join(catalogue("zh"))), list(given_messages())
    assert len(found) > 30
    missing = [f"{where}: {text}" for where, text in found if text not in known]
    assert not missing, "\n".join(missing)


def notes() -> Iterator[tuple[str, str]]:
    """(where, template) of what an answer notes about how it came about."""
    for package in ("answering", "query", "retrieval"):
        for path in sorted((PACKAGE / package).glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    kind = node.func.attr
                    appends = kind == "append" and "warnings" in ast.unparse(node.func)
                    warns = kind in ("attempt", "record_failure", "give_up")
                    for argument in node.args[0 if appends else 1 :] if appends or warns else ():
                        text = (template(argument) or "").replace("%s", "{}")
                        if " " in text:
                            text += ", because {} questions run at once" * (kind == "give_up")
                            yield f"{path.relative_to(PACKAGE)}:{node.lineno}", text


def test_every_note_of_an_answer_has_its_chinese() -> None:
    known, found = catalogue("zh"), list(notes())
    assert len(found) > 25
    missing = [f"{where}: {text}" for where, text in found if text not in known]
    assert not missing, "\n".join(missing)


def test_every_error_has_its_chinese() -> None:
    known = catalogue("zh")
    assert len(templates()) > 500
    missing = [item for item in templates() if item[1] not in known and item[1] not in INVARIANTS]
    assert not missing, "\n".join(f"{where}: {text}" for where, text in missing)


# what reads files and proves quotes: nearly each of their sentences is read by a user
_TELLING = (
    "chunkers documents intake loaders media normalisation releases/proofs sectioners".split()
)
# of these a log or a model reads some, and some are no sentences
_UNTOLD = re.compile(
    r"\\|\bSELECT\b|^(?:[A-Z][a-z]+ ){3}|^\.|^'|PowerPoint Presentation|by python-docx|^name: |"
    r"^the language of the text|asks for more fields|iso-2022|x-sjis|gb-2312|without a part|"
    r"^hidden \{\} were|end of data|^folder or list|hidden by several layers|"
    r"^(?:Added|Changed|Removed) in version |^Deprecated since version "
)


def sentences() -> Iterator[tuple[str, str]]:
    """(where, template) of each sentence in the code of `_TELLING`, as far as the code shows that a
    text is one: docstrings, logs, patterns and lists of words are left out.
    """
    for path in sorted(path for name in _TELLING for path in (PACKAGE / name).rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        passed: set[ast.AST] = {part for node in nodes for part in _unread(node)}
        for node in nodes:
            text = None if node in passed or not isinstance(node, ast.expr) else template(node)
            if text and re.search(r"[a-z]{2,} \S+ (?:.* )?[a-z]{2,}", text):
                yield f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}", text


def _unread(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node.value
    if isinstance(node, ast.JoinedStr):
        yield from node.values
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        if re.search(r"\blog\b|Logger|^re\.|^warnings\.filter|AssertionError|_raw$", called):
            yield from ast.walk(ast.Tuple(node.args))
        if called.endswith(".split") and isinstance(node.func, ast.Attribute):
            yield node.func.value


def test_every_sentence_of_what_reads_files_has_its_chinese() -> None:
    """Its own, or that of a message which it is a part of."""
    known, found = "\n".join(catalogue("zh")).replace("{#}", "{}"), list(sentences())
    assert len(found) > 300
    missing = [
        f"{where}: {text}"
        for where, text in found
        # a code before it is no part of it, and places may follow each other
        if re.sub(r"^[a-z_]+: |(?<=\})\{\}", "", text).strip(" ;,.:{}") not in known
        and not _UNTOLD.search(text)
    ]
    assert not missing, "\n".join(missing)


def test_every_rule_of_a_config_file_has_its_chinese() -> None:
    known = catalogue("zh")
    found = [
        message
        for path in sorted((PACKAGE / "config").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "ValueError"
        if (message := template(node.args[0])) is not None
    ]
    assert len(found) >= 4
    assert not [text for text in found if text not in known]


def test_every_message_in_the_troubleshooting_is_one_of_the_code() -> None:
    page = (PACKAGE.parent / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```text\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL)
    assert len(shown) >= 15
    assert {text.replace("…", "{}") for text in shown} <= {text for _, text in templates()}


def test_every_translation_has_the_places_of_its_original() -> None:
    wrong = []
    for english, chinese in catalogue("zh").items():
        wanted, places = _PLACE.findall(english), _PLACE.findall(chinese)
        order = [str(n) for n in range(len(wanted))]
        # some leave a place out that holds only the grammar of English
        if places != [""] * len(wanted) and not set(places) <= set(order):
            wrong.append(english)
        named = set(re.findall(r"\{[a-z]\w*\}", english))
        wrong += [english] if named != set(re.findall(r"\{[a-z]\w*\}", chinese)) else []
    assert not wrong


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        (  # a finding of `rag doctor`, whose message is longer than that of the line
            "warning  strategy scans: scans.yaml:19: ocr: ocr 'rapidocr' needs the extra `ocr`: pip"
            " install 'rag-platform[ocr]' (rapidocr is not installed)",
            "警告  策略 scans：scans.yaml:19: ocr: ocr 'rapidocr' 需要扩展 `ocr`：pip install"
            " 'rag-platform[ocr]'（rapidocr 未安装）",
        ),
        ("lib: no passage has tags = x", "lib：没有段落满足 tags = x"),
        ("ok       library lib: 1 document", "正常  知识库 lib：1 个文档"),
        (
            "gate-docs  open, 1 operation, 2 conflicts, made over an older version",
            "gate-docs  编辑中，1 个操作，2 处冲突，基于旧版本",
        ),
        (
            "gate-docs: open, 2 operations over default.gate@1, 1 conflict; live is default.gate@2:"
            " `rag drafts rebase gate-docs --namespace lib`",
            "gate-docs：编辑中，2 个操作，基于 default.gate@1，1 处冲突；"
            "在用版本为 default.gate@2：`rag drafts rebase gate-docs --namespace"
            " lib`",
        ),
        (
            "publishing adds 1 chunk, removes 0, keeps 3; 1 embedding to compute",
            "发布将新增 1 个文本块，移除 0 个，保留 3 个；需计算 1 个向量",
        ),
        ("1 of 3 expectations not met", "3 条期望中有 1 条未满足"),
        (
            "Note: could not be read and may say more: a/lease.pdf, b.md, and 4 more",
            "说明：以下文档无法读取，其中可能有更多内容：a/lease.pdf，b.md，另有 4 个",
        ),
        (
            "text may be missing: 80.0% of 50 words that a second reader finds stand in the chunks;"
            " 2 of them were set aside on purpose (`rag docs show DOC --dropped`); page 1: 2% of 9",
            "可能缺失文字：另一个解析器读出 50 个词，文本块里有其中的 80.0%；其中 2 个是有意略去的"
            "（`rag docs show DOC --dropped`）；第 1 页：9 个词中的 2%",
        ),
    ],
)
def test_counts_are_translated_with_their_nouns(english: str, chinese: str) -> None:
    assert translate_filled(english, "zh") == chinese


def test_no_message_has_two_translations() -> None:
    found: dict[str, set[str]] = {}
    for file in (PACKAGE / "defaults" / "messages" / "zh").glob("*.json"):
        for english, chinese in json.loads(file.read_text(encoding="utf-8")).items():
            found.setdefault(english, set()).add(chinese)
    assert [english for english, texts in found.items() if len(texts) > 1] == []


def test_one_thing_has_one_name_in_chinese() -> None:
    others = re.compile(
        "嵌入模型|评测|核验|读取器|词元|作业|摄取|数据根目录|切块|分节器"
        "|(?<!关键)词索引|(?<![已未])发布 [{]"
    )
    assert not [chinese for chinese in catalogue("zh").values() if others.search(chinese)]


def test_every_command_and_option_has_its_chinese() -> None:
    known = catalogue("zh")

    def missing(command: click.Command) -> Iterator[str]:
        texts = [inspect.cleandoc(command.help or "")]
        texts += [p.help or "" for p in command.params if isinstance(p, click.Option)]
        yield from (text for text in texts if text and text not in known)
        for each in getattr(command, "commands", {}).values():
            yield from missing(each)

    assert not list(missing(main))
    assert EXAMPLES in known


def test_every_template_finds_its_own_translation() -> None:
    """None is hidden by another one that fits as well."""
    for english, chinese in catalogue("zh").items():
        kinds = _PLACE.findall(english)
        if kinds and not re.search(r"\{[a-z]\w*\}", english):
            known = {"#": "7", "~": "done", "_": "v"}
            values = [known.get(kind, f"'v{n}'") for n, kind in enumerate(kinds)]
            shown = [value.replace("done", "已完成") for value in values]
            assert translate_filled(fill(english, values), "zh") == fill(chinese, shown)


def fill(text: str, values: list[str]) -> str:
    rest = iter(values)
    return _PLACE.sub(lambda m: values[int(m[1])] if m[1].isdigit() else next(rest), text)


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("not UTF-8; read as gbk, which is a guess", "不是 UTF-8；按推测的编码 gbk 读取"),
        (
            "the model 'm' at http://h/v1: did not answer (rate_limited, after 4 attempts): busy",
            "http://h/v1 上的模型 'm'：没有给出回答（rate_limited，尝试 4 次后）：busy",
        ),
        ("there is no second reader for loader 'pptx'", "加载器 'pptx' 没有可供核对的另一个解析器"),
        (
            "**job_1**: ingest of library 'docs', done.",
            "**job_1**：知识库 'docs' 的 `ingest` 任务，已完成。",
        ),
        ("- documents: 5 of 8, 2.1 a second", "- 文档：5 / 8，每秒 2.1"),
        (
            "query/rewrite@2  trial of 10% of the questions",
            "query/rewrite@2  试用中，用于 10% 的问题",
        ),
        (
            "query/rewrite@1  active, Li 2026-01-02 03:04",
            "query/rewrite@1  在用，Li 2026-01-02 03:04",
        ),
        (
            "trc_1  2026-01-02T03:04:05Z       65 ms  query  ok  work  why",
            "trc_1  2026-01-02T03:04:05Z       65 ms  查询  正常  work  why",
        ),
        ("trc_1  query  ok  65.0 ms  2026-01-02", "trc_1  查询  正常  65.0 ms  2026-01-02"),
        (
            "- failed: http://a/x: [address_refused] a is not fetched from: 10.0.0.1 is refused, it"
            " is reserved; for a server of your own network add 'a:80' to fetching.allow in"
            " settings.yaml",
            "- 失败：http://a/x：[address_refused] 不从 a 抓取：10.0.0.1 被拒绝，它是保留地址；"
            "若是自己网络中的服务器，请把 'a:80' 加到 settings.yaml 的 fetching.allow",
        ),
        (
            "unknown library 'vuee'; known: demo, vue; did you mean 'vue'?",
            "未知的知识库 'vuee'；现有：demo, vue；你要找的是不是 'vue'？",
        ),
        (
            "cannot listen on 127.0.0.1, port 80: in use; choose another with --port or --host",
            "无法监听 127.0.0.1 的端口 80：in use；请用 --port 或 --host 另选",
        ),
        ("document gone", "文档已不存在"),
        (  # `of Windows:` is a part of the reason
            "- n: a/caf\\xe9.md could not be added: [bad_name] the file name is not UTF-8, so no"
            " citation could name it; rename it (for a Chinese name of Windows: `convmv -f GBK -t"
            " UTF-8 --notest` and the path)",
            "- n：a/caf\\xe9.md 未能收录：[bad_name] 文件名不是 UTF-8，引用无法指明它；请改名"
            "（Windows 的中文文件名：`convmv -f GBK -t UTF-8 --notest` 加路径）",
        ),
        (
            "- n: job job_1 (ingest) failed: the job's process ended with code 1 before it"
            " finished; last line of its log (job_1.log): Boom; `rag jobs retry job_1` does the"
            " rest",
            "- n：任务 job_1（ingest）失败：任务的进程未完成就以代码 1 结束；其日志（job_1.log）的"
            "最后一行：Boom；`rag jobs retry job_1` 可完成其余部分",
        ),
        (
            "filter 'created_at' is a date, and 'foo' is none; give 2026, 2026-01, 2026-01-31 or a"
            " time: 2026-01-31T10:00:00Z, 2026-01-31T18:00:00+08:00",
            "过滤条件 'created_at' 是日期，而 'foo' 不是；请给出 2026、2026-01、2026-01-31 或时间："
            "2026-01-31T10:00:00Z、2026-01-31T18:00:00+08:00",
        ),
        ("filter 'lang' is compared with text, not 1", "过滤条件 'lang' 应与文本比较，而不是 1"),
        (
            "the language model answered with the score 'high'; it must be a number from 0 to 1",
            "语言模型返回了分数 'high'；应为 0 到 1 之间的数字",
        ),
        (
            "Dagster's daemon is run over /srv/d by `dagster dev` (process 7, for 3 s); try again"
            " when it has ended",
            "/srv/d 上已有 Dagster 守护进程在运行（由 `dagster dev`（进程 7，已 3 秒） 占用）；"
            "请在其结束后重试",
        ),
        ("- chk_1 of a/b.md: its text is gone", "- a/b.md 的 chk_1：its text is gone"),
        ("- d.a-b@1f of a/b.md: its text is gone", "- a/b.md 的 d.a-b@1f：its text is gone"),
        ("- Terms of use.md: it cannot be read", "- Terms of use.md: it cannot be read"),
        ("a, what is no longer there", "a, what is no longer there"),
        (
            "tok_1  me  read  every library  no expiry",
            "tok_1  me  read  全部知识库  永不过期",
        ),
        (
            "a is not fetched from: 10.0.0.1 is refused, it is private, loopback or reserved",
            "不从 a 抓取：10.0.0.1 被拒绝，它是私有、回环或保留地址",
        ),
        ("no document 'a' in library 'b'; c", "知识库 'b' 中没有文档 'a'；c"),
        (
            "- failed: a.pdf: [encrypted] the mail is encrypted; save it decrypted",
            "- 失败：a.pdf：[encrypted] 邮件已加密；请解密后保存",
        ),
        ("2 new, 1 failed, in 3.5 s.", "新增 2，失败 1，用时 3.5 秒。"),
        ("all documents", "all documents"),
        # names that are typed stay as they are
        (
            "unknown status 'x'; known: active, retired, deleted",
            "未知状态 'x'；可用：active, retired, deleted",
        ),
        ("a message that nobody translated", "a message that nobody translated"),
        (
            "edition 5b74d1597392 of gate-1 is published in release r1: 1 chunk added, 1 removed,"
            " 1 embedding computed, in 14.5 s.",
            "gate-1 的编辑版 5b74d1597392 已在发布版本 r1 中：新增 1 个文本块，移除 1 个，"
            "新算 1 个向量，用时 14.5 秒。",
        ),
        (
            "no run begins with 'eval_9'; see `rag eval list`",
            "没有以 'eval_9' 开头的运行；见 `rag eval list`",
        ),
        (
            "nothing to retry: no document of library 'docs' failed",
            "没有可重试的：知识库 'docs' 中没有失败的文档",
        ),
        (
            "the release run failed; the previous release stays published. no job 'x'; `rag jobs"
            " list --all` shows them",
            "发布运行失败；之前的发布版本保持不变。没有任务 'x'；`rag jobs list --all` 可列出",
        ),
        (
            "the disk is full: 0.1 MB are free under /srv; what is published stays as it is. Free"
            " some space (`rag gc` removes what nothing needs); `rag jobs retry"
            " job_1` does the work then",
            "磁盘已满：仅剩 0.1 MB，位于 /srv；已发布的内容保持不变。请释放一些空间"
            "（`rag gc` 会清除不再需要的数据）；届时 `rag jobs retry job_1` 会完成工作",
        ),
        (
            "- failed: versions_complete: missing versions: default.a@1; versions that are not"
            " live: default.b@2, default.c@3",
            "- 失败：versions_complete：缺少版本：default.a@1；"
            "不是在用版本的版本：default.b@2, default.c@3",
        ),
        (
            "- ok: counts_agree: 9 chunks of 3 documents; no approximate index, for every question"
            " scans exactly",
            "- 通过：counts_agree：3 个文档的 9 个文本块；没有近似索引，因为每个问题都精确扫描",
        ),
        (
            "settings.yaml:3: load.queries: Input should be greater than or equal to 1 (value: 0)",
            "settings.yaml:3：load.queries：应大于或等于 1（当前值：0）",
        ),
        (
            "limit: Input should be a valid integer, unable to parse string as an integer (given:"
            " 'x')",
            "limit：应为整数（给定：'x'）",
        ),
    ],
)
def test_a_finished_message_is_found_by_its_template(english: str, chinese: str) -> None:
    assert translate_filled(english, "zh") == chinese
    assert translate_filled(english, "en") == english


@pytest.mark.parametrize(
    ("variables", "language"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "en_GB.UTF-8", "LC_MESSAGES": "zh_TW"}, "zh"),
        ({"LANG": "en_GB.UTF-8", "RAG_LANG": "zh"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "RAG_LANG": "en"}, "en"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
    ],
)
def test_the_language_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], language: str
) -> None:
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert terminal_language() == language
