"""The sectioner `rule_based`: sections of contracts, logs, forms and other templated texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from rag_platform.config.user_patterns import compile_pattern, matches
from rag_platform.errors import ConfigError
from rag_platform.ir import Section
from rag_platform.sectioners.sections import Heading, MarkdownHeadings
from rag_platform.text.markdown_blocks import line_spans, structure

MAX_TITLE = 60
_HAN_NUMBER = r"[一二三四五六七八九十百千零〇两\d]{1,8}"
_LEAD = r"^[ \t　]*(?:#{1,6}[ \t]+)?[*_]{0,2}"

# (pattern, level); the first pattern that matches a line applies
TEMPLATES: dict[str, tuple[tuple[str, int], ...]] = {
    "contract": (
        (rf"{_LEAD}第{_HAN_NUMBER}[编篇](?=[ \t　*_:：]|$)", 1),
        (rf"{_LEAD}第{_HAN_NUMBER}章(?=[ \t　*_:：]|$)", 2),
        (rf"{_LEAD}第{_HAN_NUMBER}节(?=[ \t　*_:：]|$)", 3),
        (rf"{_LEAD}第{_HAN_NUMBER}条(?:之{_HAN_NUMBER})?(?=[ \t　*_:：]|$)", 4),
        (rf"{_LEAD}(?:ARTICLE|Article|PART|Part|CHAPTER|Chapter)[ \t]+(?:[IVXLC]+|\d+)\b", 2),
        (rf"{_LEAD}(?:SECTION|Section|Clause|CLAUSE|§)[ \t]*\d+(?:\.\d+)*\b", 4),
        (
            (
                rf"{_LEAD}(?:附件|附录|Annex|Appendix|Schedule|Exhibit)[ \t]*{_HAN_NUMBER[:-5]}?["
                r" \t]*(?=[ \t　:：A-Z\d]|$)"
            ),
            2,
        ),
    ),
    "log": (
        (r"^[\[(]?(?P<title>\d{4}[-/.]\d{2}[-/.]\d{2})[T ,]\d{2}:\d{2}", 1),
        (
            (
                r"^(?P<title>(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}\d{1,2})"
                r" \d{2}:\d{2}:\d{2}"
            ),
            1,
        ),
        (r"^\S+ \S+ \S+ \[(?P<title>\d{2}/[A-Z][a-z]{2}/\d{4}):\d{2}:\d{2}", 1),
    ),
    "form": (
        (
            (
                rf"{_LEAD}(?:PART|Part|SECTION|Section|第{_HAN_NUMBER}部分)["
                r" \t]*(?:[IVXLC]+|\d+|[A-Z])?\b"
            ),
            1,
        ),
        (r"^[ \t　]*(?:#{1,6}[ \t]+)?[*_]{0,2}[一二三四五六七八九十]{1,3}、", 2),
        (r"^[ \t　]*(?:#{1,6}[ \t]+)?[*_]{0,2}[（(][一二三四五六七八九十]{1,3}[)）]", 3),
        (r"^(?=.{4,60}$)[A-Z][A-Z0-9 ,/&()-]+:?[ \t]*$", 2),
    ),
}


@dataclass(frozen=True)
class RuleBased:
    """Starts a section at each line that matches a rule.

    The rules are `patterns` (each `{pattern, level}`), then those of a `template` (contract, log,
    form), then `separators`: a line equal to one of them separates sections, and the line after it
    is the title. Otherwise the title is the pattern's group `title`, else the line if it is short,
    else the match. Consecutive lines with the same title, such as those of one day of a log, form
    one section. Rules do not apply inside fences.
    """

    template: Literal["", "contract", "log", "form"] = "contract"
    patterns: Sequence[Mapping[str, Any]] = ()
    separators: Sequence[str] = ()
    doc_preamble_mode: Literal["separate", "merge_into_first", "drop"] = "separate"
    min_section_chars: int = 0

    VERSION: ClassVar[str] = "4"

    def __post_init__(self) -> None:
        if self.template and self.template not in TEMPLATES:
            raise ConfigError(
                f"template is {self.template!r}; known: {', '.join(TEMPLATES)}, or an empty one"
            )
        for rule in self.patterns:
            if (
                not isinstance(rule.get("pattern"), str)
                or rule.get("level", 1) not in range(1, 7)
                or set(rule) - {"pattern", "level"}
            ):
                raise ConfigError(
                    f"a rule needs `pattern`, and may have `level` 1 to 6: {dict(rule)}"
                )
            compile_pattern(rule["pattern"])
        if not (self.template or self.patterns or self.separators):
            raise ConfigError("rule_based needs a template, patterns or separators")
        self._structure()

    def _structure(self) -> MarkdownHeadings:
        return MarkdownHeadings(6, True, self.doc_preamble_mode, max(1, self.min_section_chars))

    def sections(self, text: str, headings: Sequence[Heading], doc_id: str) -> list[Section]:
        """Sections in order, none blank; a section without text joins its child."""
        return self._structure().sections(text, self._find_headings(text), doc_id)

    def _find_headings(self, text: str) -> list[Heading]:
        fences = [run for run in structure(text) if run.kind == "fence"]
        by_line: dict[int, tuple[int, str]] = {}
        for pattern, level in [
            *((rule["pattern"], rule.get("level", 1)) for rule in self.patterns),
            *TEMPLATES.get(self.template, ()),
        ]:
            for match in matches(pattern, text):
                start = text.rfind("\n", 0, match.start()) + 1
                by_line.setdefault(start, (level, _title(text, start, match)))
        for start, title in self._find_separators(text):
            by_line.setdefault(start, (1, title))
        found: list[Heading] = []
        for start, (level, title) in sorted(by_line.items()):
            if any(run.start <= start < run.end for run in fences) or (
                found and found[-1][1:] == (level, title)
            ):
                continue
            found.append((start, level, title))
        return found

    def _find_separators(self, text: str) -> Iterator[tuple[int, str]]:
        """(start of a separator line, title from the line after it)."""
        separator = -1
        for start, end in line_spans(text):
            line = text[start:end].strip()
            if line and line in self.separators:
                separator = start
            elif line and separator >= 0:
                yield separator, line.strip(" \t#*_")[:MAX_TITLE]
                separator = -1


def _title(text: str, start: int, match: re.Match[str]) -> str:
    if title := match.groupdict().get("title"):
        return " ".join(str(title).split())
    stop = text.find("\n", start)
    line = text[start : stop if stop >= 0 else len(text)].strip(" \t　#*_")
    return " ".join((line if len(line) <= MAX_TITLE else match.group()).strip(" \t　#*_").split())
