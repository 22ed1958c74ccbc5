"""What stands in place of an answer: a plain statement and the closest passages."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rag_platform.answering.citations import escape_marks, make_citation, shorten
from rag_platform.answering.constants import SNIPPET_CHARS
from rag_platform.answering.quote_places import narrow
from rag_platform.contract.markdown_views import hit_text
from rag_platform.ir import Citation, Hit, format_section

# By kind, in English and in Chinese.
_STATEMENTS = {
    "nothing": (
        "Nothing in the library matches this question.",
        "知识库中没有与该问题匹配的内容。",
    ),
    "filtered": (
        "The filters let no passage through, so that nothing was searched.",
        "没有符合过滤条件的段落，因此未进行检索。",
    ),
    "nothing_found": (
        "The library seems to hold nothing on this. The nearest passages are:",
        "知识库中似乎没有相关内容。最接近的段落如下：",
    ),
    "closest": (
        "This may not be the answer. What comes closest:",
        "这可能不是答案。最接近的原文如下：",
    ),
    "no_answer": (
        "No passage clearly answers this question. The closest ones, which may not answer it:",
        "没有段落明确回答这个问题。最接近的段落如下，未必是答案：",
    ),
    "failed": (
        "The answer could not be written; these are the passages found:",
        "未能生成回答；检索到的段落如下：",
    ),
    "unreachable": ("The library could not be searched: {reason}", "无法检索知识库：{reason}"),
}


def list_passages(
    kind: str, language: str, passages: Sequence[tuple[Hit, str]], reason: str = ""
) -> tuple[str, tuple[Citation, ...]]:
    """(a statement in Chinese or English and the closest passages as Markdown, their citations).

    `kind` is a key of `_STATEMENTS`. Each passage comes with its sentence nearest to the question;
    where that is empty, its beginning is shown.
    """
    lines = [_STATEMENTS[kind][1 if language == "zh" else 0].format(reason=reason)]
    if passages:
        lines.append("")
    cited: list[Citation] = []
    for n, (hit, sentence) in enumerate(passages, 1):
        at = hit.chunk_text.find(sentence) if sentence else -1
        spans = ((at, at + len(sentence)),) if at >= 0 else ()
        cited.append(narrow(dataclasses.replace(make_citation(n, hit), spans=spans)))
        path = format_section(cited[-1].quote_section or hit.section_path)
        section = f" ({path})" if path else ""
        title = hit.doc_title or hit.filename
        snippet = escape_marks(shorten(sentence or hit_text(hit), SNIPPET_CHARS))
        lines.append(f"- **{title}**{section}: {snippet} [{n}]")
    return "\n".join(lines), tuple(cited)


def mark_closest(text: str, language: str) -> str:
    """The quotes, preceded by a statement that they may not be the answer."""
    return f"{_STATEMENTS['closest'][1 if language == 'zh' else 0]}\n\n{text}"
