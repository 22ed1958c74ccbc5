"""Filters and preferences told from the words of a question by rules, in Chinese and English.

A filter removes results, so one is told only from wording that asks for it: an aside that stands
alone (`…, PDF only`; `只看中文`), an opening (`In the English docs: …`; `英文资料：…`), or a noun
of documents beside the condition (`近一周的文档`; `documents since 2025-01`). `How do I export to
PDF?` and `近一周股价` tell nothing. Its words are taken out of the text that is searched; those of
a preference stay, for they may well stand in the passages too.

Periods that end now (`近一周`) are counted by `created_at`, when the library received a version;
calendar dates (`2024年的文档`) by `doc_date`, the document's own date where it has one.


The wordings by which a question asks for a filter or a preference, or says what to do; each rule
tells little rather than too much.

The group `said` is the words that are taken out of the question. Repetitions are bounded, so that
no text makes one slow.

The words by which a question names languages, kinds of files and numbers; `a,b: x` names x by a and
by b.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta

from rag_platform.config.query import InferenceConfig
from rag_platform.ir import Json
from rag_platform.text.scripts import HAN

_BLANKS = re.compile(r"\s{2,}")
_BLANK_BEFORE = re.compile(r"\s+(?=[?!？！。,，;；])")
# What taking words out may leave at the ends, and brackets around nothing.
_EMPTY_BRACKETS = re.compile(r"[(（\[【]\s*[)）\]】]")
_EDGES = " \t,，。.;；:：、-|"
_MARGINS = _EDGES + "()（）[]【】?？!！"
_DAYS = {
    "day": 1,
    "week": 7,
    "month": 30,
    "year": 365,
    "天": 1,
    "日": 1,
    "周": 7,
    "星期": 7,
    "礼拜": 7,
    "月": 30,
    "年": 365,
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LONGEST_DAYS = 36_500
# of a question; a longer text is a passage that somebody asks about, whose words are no conditions
MAX_CHARS = 400
Found = tuple[str, object]  # a field and its condition


@dataclass(frozen=True, slots=True)
class Inferred:
    """What a question asks for besides its subject."""

    filters: Json = field(default_factory=dict)  # hard, by the catalog's field names
    preferences: tuple[str, ...] = ()  # of filters.SOFT_FIELDS
    # the question without the words of its filters; the whole of it when nothing would be left
    rest: str = ""
    said: tuple[str, ...] = ()  # one sentence for each filter


def inferred(text: str, *, today: date, config: InferenceConfig) -> Inferred:
    """The filters on `config.fields` and the preferences that a cleaned question asks for; of two
    for one field the first counts.

    Whether anything is to be inferred (`config.enabled`) is for the caller to say. A text above
    MAX_CHARS asks for nothing.
    """
    if len(text) > MAX_CHARS:
        return Inferred(rest=text)
    names = _names_of(config)
    filters: Json = {}
    said: list[str] = []
    rest, lowered = text, text.translate(SIMPLIFIED).lower()
    for rule in rules(names.known):
        for pattern in rule.patterns() if rule.may_match(lowered) else ():
            match = pattern.search(rest.translate(SIMPLIFIED))
            found = _READERS[rule.reader](_Told(match, rest, names, today)) if match else None
            if (
                match is None
                or found is None
                or found[0] not in config.fields
                or found[0] in filters
            ):
                continue
            filters[found[0]] = found[1]
            start, end = match.span("said")
            said.append(f"`{rest[start:end].strip(_MARGINS)}` asks for {shown(*found)}")
            rest = f"{rest[:start]} {rest[end:]}"
    preferences = tuple(
        rule.reader
        for rule in PREFERENCES
        if rule.may_match(lowered) and any(pattern.search(lowered) for pattern in rule.patterns())
    )
    return Inferred(filters, preferences, (_tidied(rest) or text) if filters else text, tuple(said))


def warm(config: InferenceConfig) -> None:
    """Compile what questions are tried on."""
    for rule in (*rules(_names_of(config).known), *PREFERENCES):
        rule.patterns()


def _tidied(text: str) -> str:
    """The rest of a question; empty when nothing that could be searched is left."""
    tidy = _BLANK_BEFORE.sub("", _BLANKS.sub(" ", _EMPTY_BRACKETS.sub(" ", text))).strip(_EDGES)
    return tidy if any(map(str.isalnum, tidy)) else ""


def shown(name: str, condition: object) -> str:
    """A condition as a sentence says it: `lang = zh`, `doc_date from 2024 before 2025`."""
    if not isinstance(condition, Mapping):
        return f"{name} = {condition}"
    words = {
        "$eq": "=",
        "$gte": "from",
        "$lte": "to",
        "$gt": "above",
        "$lt": "before",
        "$contains": "with",
    }
    return f"{name} " + " ".join(
        f"{words.get(key, key)} {value}" for key, value in condition.items() if key != "$missing"
    )


# --- names --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Names:
    """Lower-case names to the field and value they stand for, and (names of languages, names of
    types).
    """

    fields: Mapping[str, Found]
    known: tuple[tuple[str, ...], tuple[str, ...]]


def _names_of(config: InferenceConfig) -> _Names:
    return _names(
        tuple(config.language_aliases.items()), tuple(config.media_type_by_keyword.items())
    )


@functools.lru_cache(maxsize=8)
def _names(languages: tuple[tuple[str, str], ...], types: tuple[tuple[str, str], ...]) -> _Names:
    """The built-in names and those of the configuration, which win; `a,b: x` names x by a and by
    b.
    """
    found: dict[str, Found] = {}
    found |= {name: ("lang", code) for name, code in _spread(LANGUAGES.items())}
    found |= {name: ("content_type", mime) for name, mime in _spread(TYPES.items())}
    found |= {name: ("media_type", kind) for name, kind in _spread(MEDIA_TYPES.items())}
    found |= {name: ("lang", code) for name, code in _spread(languages)}
    mimes = dict(_spread(TYPES.items()))
    found |= {
        name: ("content_type", mimes[kind]) if kind in mimes else ("media_type", kind)
        for name, kind in _spread(types)
    }
    spoken = tuple(name for name, (key, _) in found.items() if key == "lang")
    return _Names(found, (spoken, tuple(name for name, (key, _) in found.items() if key != "lang")))


def _spread(table: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    for names, value in table:
        for name in names.split(","):
            if name.strip():
                yield name.strip().lower(), value


# --- readers: a match to a field and its condition, None where it means nothing -----------------


@dataclass(frozen=True, slots=True)
class _Told:
    """A wording that was found, and what it may be read by."""

    match: re.Match[str]
    text: str  # as written
    names: _Names
    today: date

    def written(self, *groups: str) -> str:
        """The first of the groups that holds something, as it was written; empty without any."""
        held = self.match.groupdict()
        return next(
            (
                self.text[slice(*self.match.span(group))].strip()
                for group in groups
                if held.get(group)
            ),
            "",
        )


def _named(told: _Told) -> Found | None:
    name = told.match.group("name").lower()
    return told.names.fields.get(name) or told.names.fields.get(name.removesuffix("s"))


_ABOVE = frozenset(
    {
        ">",
        "大于",
        "高于",
        "超过",
        "above",
        "over",
        "greater than",
        "higher than",
        "more than",
        "better than",
    }
)


def _quality(told: _Told) -> Found | None:
    value = float(told.match.group("value")) / (100 if told.match.group("percent") else 1)
    operator = "$gt" if told.match.group("operator").lower() in _ABOVE else "$gte"
    return ("quality_score", {operator: round(value, 6)}) if 0 <= value <= 1 else None


def _recent(told: _Told) -> Found | None:
    count = (told.match.group("count") or "one").lower()
    half = count == "半"
    number = 1 if half else int(count) if count.isdigit() and count.isascii() else _counted(count)
    unit = told.match.group("unit").lower().removesuffix("s").removeprefix("个")
    days = number * _DAYS[unit] // (2 if half else 1)
    if not 0 < days <= _LONGEST_DAYS or told.today.toordinal() <= days:
        return None
    return "created_at", {"$gte": (told.today - timedelta(days=days)).isoformat()}


def _counted(word: str) -> int:
    """The value of a number word up to 99, 0 for one that is none."""
    tens, ten, ones = word.partition("十")
    if not ten:
        return NUMBERS.get(word, 0)
    return 10 * (NUMBERS.get(tens, 0) if tens else 1) + (NUMBERS.get(ones, 0) if ones else 0)


def _dated(told: _Told) -> Found | None:
    """A year, month or day: all of it, or what begins or ends with it."""
    parts = told.match.groupdict()
    month = parts.get("month") or ""
    if month and not month.isdigit():
        month = str(_MONTHS.index(month[:3].lower()) + 1)
    pieces = [
        parts["year"],
        *([f"{int(month):02}"] if month else []),
        *([f"{int(parts['day']):02}"] if parts.get("day") else []),
    ]
    try:
        date(int(pieces[0]), *(int(piece) for piece in (*pieces[1:], "1", "1")[:2]))
    except ValueError:
        return None
    day = "-".join(pieces)
    bound = (parts.get("bound") or "").lower()
    operator = _BOUNDS.get(bound)
    return "doc_date", {operator: day} if operator else day


_BOUNDS = {
    "以来": "$gte",
    "以后": "$gte",
    "之后": "$gt",
    "后": "$gt",
    "起": "$gte",
    "以前": "$lt",
    "之前": "$lt",
    "前": "$lt",
    "since": "$gte",
    "from": "",
    "after": "$gt",
    "before": "$lt",
    "until": "$lte",
}


def _tag(told: _Told) -> Found | None:
    value = told.written("quoted", "value")
    # strict: a document without tags has not that tag, and nothing found is an answer
    return ("tags", {"$contains": value, "$missing": "exclude"}) if value else None


def _keyphrase(told: _Told) -> Found | None:
    value = told.written("quoted", "value")
    return ("keyphrases", {"$contains": value}) if value else None


def _source(told: _Told) -> Found | None:
    value = told.written("quoted", "value")
    return ("source", {"$eq": value, "$missing": "exclude"}) if value else None


_READERS: Mapping[str, Callable[[_Told], Found | None]] = {
    "name": _named,
    "quality": _quality,
    "recent": _recent,
    "dated": _dated,
    "tag": _tag,
    "keyphrase": _keyphrase,
    "source": _source,
}


Names = tuple[tuple[str, ...], tuple[str, ...]]  # names of languages, names of types

# A clause of its own begins and ends here.
_L = r"(?:^|(?<=[,，。.;；:!！?？(（\[【|])|(?<=\s[-–—]\s))\s*"
_R = r"(?=\s*(?:$|[,，。.;；:!！?？)）\]】|]))"
_END = r"(?=\s*[?？。.!！)）]?\s*$)"
# A question about how things are done speaks of its nouns and asks for no documents.
_NO_HOW = (
    r"(?!.*(?:如何|怎么|怎样|为什么|为何|能否|能不能|可以|是否|步骤|方法|\bhow\b|\bwhy\b|\bcan\b|\bcould\b|\btranslat|\bcontribut))"
    r"(?!(?:is|are|was|were|does|do|did|will|would|should|has|have)\b)"
)
_NO_USE = (
    r"(?!.*\b(?:supports?|accepts?|speaks?|available|releas|publish|works?|allow|reads?|opens?|"
    r"export|import|upload|convert|convers))"
)
_SAYS = (
    r"(?=.*\b(?:say|says|said|mention|describ|find|search|look|documented|covered?|explain|"
    r"stated?|about|tell|read))"
)
_BUILDS = r"(?!.*\b(?:build|built|install|compil|run|deploy|packag|open))"

# Before a noun of documents: then something is done with them.
_NOT_DONE = "".join(
    f"(?<!{verb})"
    for verb in (
        "打开 创建 新建 编辑 转换 转为 转成 生成 导出 导入 上传 下载 读取 解析 保存 处理 打印 加密"
        " 合并 拆分 制作 支持 使用 输出 插入"
    ).split()
)

_DOC = r"(?:文档|文件|档案|资料|材料|文章|手册|笔记|报告)"
_DOC_LOOSE = rf"(?:{_DOC}|页面|文献|记录|内容)"
_DOCS = (
    r"(?:documents|docs|files|pages|articles|notes|papers|reports|entries|guides|manuals|sources|"
    r"slides)"
)
_DOC_EN = rf"(?:{_DOCS}|file|document|documentation|page|results|ones|texts?|content|material)"
_FORM = r"\s*(?:格式|类型|版)?的?\s*"
_SEEK = r"(?=\s*(?:查|搜|找|检索|有没有|怎么说|如何说|提到|讲|说))"

_NUMBER = r"(?P<count>\d{1,3}|[一两二三四五六七八九十]{1,3}|半)"
_PERIOD = (
    rf"(?:最近|近|过去)这?\s*{_NUMBER}\s*(?P<unit>个?月|天|日|周|个?星期|个?礼拜|年)(?:之?内|以来"
    rf"|里)?"
)
_ADDED = r"(?:新增|更新|上传|入库|收录|导入|添加)"
_PERIOD_EN = (
    r"(?:(?:in|from|within|over|during|of)\s+)?(?:the\s+)?(?:last|past)\s+"
    # the last week is seven days; the last year may be the one in the calendar
    r"(?:(?P<count>\d{1,3}|one|two|three|four|five|six|seven|eight|nine|ten)\s+|(?=(?:week|month)\b))"
    r"(?P<unit>days?|weeks?|months?|years?)\b"
)
_ADDED_EN = (
    r"(?:(?:that\s+(?:were|are)\s+)?(?:newly\s+)?(?:added|updated|uploaded|ingested|received|"
    r"changed)\s+)"
)
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_DATE_ZH = (
    rf"{_YEAR}\s*年\s*(?:(?P<month>\d{{1,2}})\s*月份?\s*(?:(?P<day>\d{{1,2}})\s*[日号])?)?\s*"
    r"(?P<bound>以来|以后|之后|后|起|以前|之前|前)?\s*(?:发布|更新|上传|新增|创建|编写)?\s*的?"
)
_ISO = rf"{_YEAR}(?:-(?P<month>\d\d)(?:-(?P<day>\d\d))?)?(?![\w-])"
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_DATE_EN = (
    r"(?:(?:that\s+(?:were|are)\s+)?(?:dated|written|created|published|updated|added|uploaded)\s+)?"
)
_BOUND_EN = r"(?:(?P<bound>since|after|before|until|from)|in|of|dated)\s+"

_MORE = r">=|≥|>"
_MORE_ZH = r"大于等于|不低于|不小于|大于|高于|超过|至少为?"
_MORE_EN = (
    r"(?:of\s+)?at least|above|over|greater than|higher than|more than|better than|not below|no"
    r" less than"
)
_SCORE = (
    r"(?P<value>0?\.\d{1,4}|1(?:\.0{1,4})?|0(?:\.\d{1,4})?|\d{1,3}(?=\s?%))(?!\d|"
    r"\.\d)\s?(?P<percent>%)?"
)
_QUALITY = r"质量(?:分数?|评分|得分)?\s*"
_NO_UNIT = r"(?!\s*(?:[kmµ]?g\b|千克|公斤|毫?克|吨|斤|倍|太阳|地球|lbs?\b|u\b|Da\b))"

_QUOTED = r"[\"“「'](?P<quoted>[^\"”」'\n]{1,60})[\"”」']"
_NO_QUESTION = r"(?!\S{0,30}(?:怎么|如何|什么|哪|吗|多少))"
_VALUE_ZH = (
    rf"(?P<value>{_NO_QUESTION}[^\s,，。.;；:?？!！()（）【】《》|\"'“”「」的]{{1,30}}+)(?!\s*:)"
)
_VALUE = r"(?P<value>[\w.+#/-]{1,60})"
_APART = r"(?:^|(?<=[\s,，。;；(（]))"
_NO_TAG = (
    r"(?!(?:include|define|ifdef|ifndef|endif|pragma|undef|error|import|region|endregion|"
    r"[0-9a-f]{3}|[0-9a-f]{6}|[0-9a-f]{8})\b)"
)
_NO_SOURCE = (
    r"(?!(?:code|codes|control|files?|trees?|repos?|repository|data|images?|ip|ips|url|urls|text|"
    r"documents?|tables?|maps?|to)\b)"
)


_TIMES = ("近", "过去", "last", "past")
_BESIDE_NAMES = tuple(
    "只 仅 限 文 资料 材料 手册 笔记 报告 only just limit restrict the our my all".split()
)


@dataclass(frozen=True, slots=True)
class Rule:
    """The wordings that one reader reads; a text in lower case that holds none of `needs`, one of
    each, is none of them.
    """

    reader: str
    needs: tuple[tuple[str, ...], ...]
    wordings: tuple[str, ...]

    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """The wordings, compiled when they are first tried: all of them take a fifth of a second,
        and a question needs few.
        """
        return _compiled(self.wordings)

    def may_match(self, lowered: str) -> bool:
        """False for the many questions that the wordings need not be tried on."""
        return all(any(word in lowered for word in words) for words in self.needs)


@functools.lru_cache(maxsize=8)
def rules(names: Names) -> tuple[Rule, ...]:
    """The rules in the order in which they are tried, with these names of languages and types."""
    languages, types = names
    every = (*languages, *types)
    named = (*_by_name(_any(every)), *_named_languages(_any(languages)), *_named_types(_any(types)))
    return (
        _rule("tag", _TAGS, ("标签", "tag", "#")),
        _rule("keyphrase", _KEYPHRASES, ("关键词", "关键字", "keyword")),
        _rule("source", _SOURCES, ("来源", "source")),
        _rule("quality", _QUALITIES, ("质量", "quality"), tuple("0123456789")),
        _rule("name", _named_beside_times(_any(every)), every, (*_TIMES, "19", "20")),
        _rule("recent", _RECENT, _TIMES),
        _rule("dated", _DATED, ("19", "20")),
        _rule("name", named, every, _BESIDE_NAMES),
    )


def _rule(reader: str, wordings: Iterable[str], *needs: tuple[str, ...]) -> Rule:
    return Rule(reader, needs, tuple(wordings))


@functools.lru_cache(maxsize=64)
def _compiled(wordings: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(wording, re.IGNORECASE) for wording in wordings)


def _any(names: Iterable[str]) -> str:
    """One of the names as the group `name`; those in Latin letters as whole words, also in the
    plural.
    """
    ordered = sorted(names, key=lambda name: (-len(name), name))
    latin = "|".join(re.escape(name) for name in ordered if name.isascii())
    other = "|".join(re.escape(name) for name in ordered if not name.isascii())
    whole = rf"(?<![A-Za-z0-9_-])(?:{latin})s?(?![A-Za-z0-9_])" if latin else ""
    return f"(?P<name>{'|'.join(filter(None, (other, whole))) or '(?!)'})"


def _by_name(name: str) -> tuple[str, ...]:
    """Wordings for languages and types alike."""
    see = r"(?:只看|只查|只搜索?|只找|只检索|仅看|仅查|仅搜索?|仅检索)"
    only = rf"(?:{see}|仅限于?|限定为?|限于)"
    verb = (
        r"(?:(?:search|look|show|list|find|use|check|read|return|give|answer|limit|"
        r"restrict)\s+(?:me\s+|it\s+|to\s+)?)?"
    )
    return (
        rf"{_L}(?P<said>请?(?:帮我)?{only}\s*[在从]?\s*{name}{_FORM}(?:{_DOC_LOOSE}(?:里面?|中|内)?的?|{_R}|(?=\s)))",
        rf"(?<=\s)(?P<said>请?(?:帮我)?{see}\s*[在从]?\s*{name}{_FORM}{_DOC_LOOSE}?(?:里面?|中|内)?的?){_END}",
        rf"{_L}(?P<said>请?(?:只要|仅|限|只用|只需要?|只在)\s*{name}{_FORM}{_DOC_LOOSE}?(?:里面?|中|内)?){_R}",
        rf"^(?P<said>请?[在从]?(?:搜索?|查找?|检索)?\s*{name}{_FORM}{_DOC_LOOSE}(?:里面?|中|内)?\s*:)",
        rf"(?:哪些|哪几?份|哪个)\s*(?P<said>{name}{_FORM}{_DOC})(?=[里中]?(?:提到|提及|讲|说|写|包含|涉及|介绍|规定|描述))",
        rf"^{_NO_HOW}.{{0,200}}?(?:(?:关于|有关).{{1,80}}的|相关的|有没有|有哪些|找|给我|列出|搜索)(?P<said>\s*{name}{_FORM}{_DOC})"
        r"(?:有哪些|有吗|吗)?" + _END,
        rf"^{_NO_HOW}.{{0,200}}[{HAN}]{_NOT_DONE}\s+(?P<said>{name}{_FORM}{_DOC})$",
        rf"{_L}(?P<said>(?:please\s+)?{verb}(?:only|just)\s+(?:(?:in|from|at|to|through)\s+)?(?:the\s+|our\s+)?{name}(?:\s+{_DOC_EN})?"
        rf"(?:\s+please)?){_R}",
        rf"{_L}(?P<said>(?:limit(?:ed)?|restrict(?:ed)?)\s+to\s+(?:the\s+)?{name}(?:\s+{_DOC_EN})?){_R}",
        rf"{_L}(?P<said>(?:please\s+)?(?:(?:in|from)\s+)?(?:the\s+)?{name}(?:\s+{_DOC_EN})?\s+only(?:\s+please)?){_R}",
        rf"^{_NO_HOW}{_NO_USE}.{{0,80}}\w\s+(?P<said>{name}(?:\s+{_DOC_EN})?\s+only){_END}",
        rf"^(?P<said>(?:please\s+)?(?:search|look|check|show|list|find|give)\s+(?:me\s+)?only\s+(?:(?:in|through|at)\s+)?(?:the\s+)?{name}"
        rf"(?:\s+{_DOC_EN})?(?:\s+for)?)\s",
    )


def _named_beside_times(name: str) -> tuple[str, ...]:
    """A name between a time and the noun of documents that it is a condition on, as the time is."""
    among = rf"(?P<said>{name}{_FORM})(?=(?:{name.replace('?P<name>', '?:')}{_FORM})?"
    near = rf"{_PERIOD}\s*的?\s*(?:{_ADDED}[了过]?的?\s*)?{among}{_DOC}(?!综述))"
    english = (
        rf"(?P<said>{name})\s+(?={_DOCS}\s+(?:{_ADDED_EN}?{_PERIOD_EN}|"
        rf"{_DATE_EN}{_BOUND_EN}(?:{_ISO}|{_MONTH}\s+(?:19|20)\d\d)))"
    )
    dated = rf"(?<!据)(?<!依照)(?<!按照){_DATE_ZH}\s*{among}(?:文档|文件|笔记))"
    return (near, near, dated, dated, english)  # twice, for a language and a kind


def _named_languages(name: str) -> tuple[str, ...]:
    within = (
        rf"(?:in|from|among|across|within)\s+(?:the|our|my|all)\s+{name}\s+(?:{_DOCS}|"
        rf"documentation)"
    )
    return (
        rf"^(?P<said>请?(?:帮我)?[在从]\s*{name}{_FORM}{_DOC_LOOSE}(?:里面?|中|内)){_SEEK}",
        rf"^(?P<said>请?[在从]\s*{name}{_FORM}{_DOC_LOOSE}(?:里面?|中|内)),",
        rf"^(?P<said>{within}\s*[,:])",
        rf"^{_NO_HOW}.{{1,400}}?\b(?P<said>{within}){_END}",
    )


def _named_types(name: str) -> tuple[str, ...]:
    within = rf"(?:in|from|among|across|within)\s+(?:the|our|my|all)\s+{name}\s+{_DOCS}"
    return (
        rf"^{_NO_HOW}{_SAYS}(?P<said>{within}\s*[,:])",
        rf"^{_NO_HOW}{_SAYS}.{{1,400}}?\b(?P<said>{within}){_END}",
    )


_TAGS = (
    rf"(?:{_APART}|(?<=带)|(?<=有)|(?<=打了))(?P<said>标签\s*[:=]\s*(?:{_QUOTED}|{_VALUE_ZH})(?:的(?=\s*{_DOC_LOOSE})|的?(?=\s*$))?)",
    rf"(?P<said>标签[为是]\s*(?:{_QUOTED}|{_VALUE_ZH})的)(?=\s*{_DOC_LOOSE})",
    rf"{_APART}(?P<said>tags?\s?[:=](?:\s?{_QUOTED}|{_VALUE}))",
    rf"^(?P<said>#{_NO_TAG}{_NO_QUESTION}(?P<value>[^\W\d_]\w{{1,39}}))(?=\s)",
    rf"(?<=\s)(?P<said>#{_NO_TAG}{_NO_QUESTION}(?P<value>[^\W\d_]\w{{1,39}}))(?=\s*[?？。.!！]?$)",
    rf"\b(?P<said>(?:tagged(?:\s+(?:with|as))?|with\s+(?:the\s+)?tag)\s+{_QUOTED})",
    rf"\b{_DOCS}\s+(?P<said>(?:tagged(?:\s+(?:with|as))?|with\s+the\s+tag)\s+(?P<value>[\w.+#-]{{2,40}}))"
    r"(?=\s*(?:$|[,.;?!)]|(?:about|on|for|that|which|mention|describ|explain)))",
)
_KEYPHRASES = (
    rf"{_APART}(?P<said>关键[词字]\s*[:=]\s*(?:{_QUOTED}|{_VALUE_ZH})(?:的(?=\s*{_DOC_LOOSE}))?)",
    rf"{_APART}(?P<said>keywords?[:=](?:\s?{_QUOTED}|{_VALUE}))",
)
_SOURCES = (
    rf"{_APART}(?P<said>来源\s*[:=]\s*(?:{_QUOTED}|{_VALUE_ZH})(?:的(?=\s*{_DOC_LOOSE}))?)",
    rf"{_APART}(?P<said>来源\s+{_NO_SOURCE}(?P<value>[A-Za-z0-9][\w.-]{{1,59}})){_R}",
    rf"(?P<said>来源[为是]\s*(?:{_QUOTED}|{_VALUE_ZH})的)(?=\s*{_DOC_LOOSE})",
    rf"{_APART}(?P<said>source[:=](?:\s?{_QUOTED}|{_VALUE}))",
    rf"\b(?P<said>(?:only\s+)?(?:in|from)\s+(?:the\s+)?source\s+{_QUOTED})",
    rf"^{_BUILDS}(?P<said>(?:only\s+)?(?:in|from)\s+(?:the\s+)?source\s+{_NO_SOURCE}(?P<value>[A-Za-z0-9][\w.-]{{1,59}}))\s*[,:]",
    rf"^{_BUILDS}.{{1,400}}?\b(?P<said>(?:only\s+)?(?:in|from)\s+(?:the\s+)?source\s+{_NO_SOURCE}(?P<value>[A-Za-z0-9][\w-]{{1,59}})){_END}",
)
_QUALITIES = (
    rf"(?P<said>{_QUALITY}(?P<operator>{_MORE})\s*{_SCORE}{_NO_UNIT}(?:以上)?的?)"
    rf"(?:(?<=的)\s*(?={_DOC_LOOSE})|(?<!的)(?=\s)|(?<!的){_R})",
    rf"{_APART}(?P<said>{_QUALITY}(?P<operator>{_MORE_ZH})\s*{_SCORE}{_NO_UNIT}(?:以上)?)(?=\s+(?!的|[小低少不]|[且并或和与到至以<]))",
    rf"(?P<said>{_QUALITY}(?P<operator>{_MORE_ZH})\s*{_SCORE}{_NO_UNIT}(?:以上)?的?)(?:(?<=的)\s*(?={_DOC_LOOSE})|(?<!的){_R})",
    rf"(?:{_L}|\b{_DOC_EN}\s+|\b(?=with\s))"
    r"(?P<said>(?:with\s+)?(?:a\s+)?quality(?:[_"
    rf" ]score)?\s*(?P<operator>{_MORE}|{_MORE_EN})\s*{_SCORE})"
    rf"(?![\w.]){_NO_UNIT}",
)
_RECENT = (
    rf"(?P<said>{_PERIOD}\s*的?\s*(?:{_ADDED}[了过]?的?\s*)?{_DOC}[里中内]面?的?)",
    rf"(?P<said>{_PERIOD}\s*的?\s*(?:{_ADDED}[了过]?的?\s*)?)(?={_DOC}(?!综述))",
    rf"(?P<said>{_PERIOD}\s*{_ADDED})(?=[了过]?(?:哪些|什么|的?\s*{_DOC_LOOSE})|\s|[,，?？。]|$)",
    rf"^(?P<said>{_PERIOD})(?=[\s,，].*(?:文档|资料|文件|材料|手册))",
    rf"^(?=.*(?:文档|资料|文件|材料|手册)).{{1,400}}?[\s,，](?P<said>{_PERIOD}){_END}",
    rf"^{_NO_HOW}(?P<said>{_PERIOD}的?)(?=.{{1,40}}(?:文档|资料|文件|材料)\s*[?？]?$)",
    rf"\b{_DOCS}\s+(?P<said>{_ADDED_EN}?{_PERIOD_EN})",
    rf"\b(?P<said>(?:added|updated|uploaded|ingested)\s+{_PERIOD_EN}){_END}",
    rf"[,;(]\s*(?P<said>only\s+{_PERIOD_EN}){_END}",
    r"[,;(]\s*(?P<said>(?:the\s+)?(?:last|past)\s+(?P<count>\d{1,3})\s+(?P<unit>days|weeks))"
    + _END,
)
_DATED = (
    # 资料 of a year are its data
    rf"(?<!据)(?<!依照)(?<!按照)(?P<said>{_DATE_ZH})(?=\s*(?:文档|文件|笔记))",
    rf"\b{_DOCS}\s+(?P<said>{_DATE_EN}{_BOUND_EN}{_ISO})",
    rf"\b{_DOCS}\s+(?P<said>{_DATE_EN}{_BOUND_EN}(?P<month>{_MONTH})\s+{_YEAR})\b",
    rf"^(?=.*\b{_DOCS}\b).{{1,400}}?\b(?P<said>(?P<bound>since)\s+{_ISO}){_END}",
    rf"[,;(]\s*(?P<said>(?:only\s+)?(?P<bound>since|after|before)\s+{_ISO}){_END}",
)

_GUIDES = (
    r"(?:docs?|documentation|documents?|guides?|guidelines?|sources?|manuals?|references?|"
    r"tutorials?|handbooks?)"
)
_PICTURE = r"(?:pictures?|images?|figures?|diagrams?|screenshots?|photos?|illustrations?)"
_INSIDE = r"(?:里面?|中(?!文)|内)?的?"
# What no passage holds of a preference is its `said`; a wording without one is a preference whose
# words may be the subject as well.
_RECENT_WORDS = (
    r"(?P<said>最新的?)",
    rf"(?<![离距与])(?P<said>最近的?)(?={_DOC}|更新|规定|政策|公告|通知)",
    r"(?P<said>(?<!at )\bthe latest\b|(?:^|(?<=[,;] ))latest\b|\bnewest\b|\bmost recent\b)(?!-)",
)
_OFFICIAL_WORDS = (
    rf"(?P<said>官方(?:发布的?|(?:文档|资料|手册|说明|指南|教程){_INSIDE}|(?=来源|网站|公告|渠道|答复|解释|版本的))|优先官方)",
    rf"\b(?P<said>official(?:\s+{_GUIDES}|(?=\s+(?:announcements?|statements?))))\b",
)
_PICTURE_WORDS = (
    (
        r"(?:^|(?<=[\s,，。"
        rf";；!！?？]))(?P<said>(?:要|最好)?(?:带有?|附|含有?|包含|配)(?:图片|截图|示意图|图(?![标像形表例层书]))的?)(?:{_END}|(?<=的)|(?={_DOC}))"
    ),
    r"带有?图|有图的|配图的|附图|图文并茂|含有?图片|包含(?:图片|截图|示意图)的",
    rf"^{_NO_HOW}.{{1,400}}?[\s,;](?P<said>with\s+(?:an?\s+|some\s+)?{_PICTURE}){_END}",
    rf"^{_NO_HOW}.{{0,400}}?\b(?P<said>{_GUIDES}\s+with\s+{_PICTURE})\b",
    rf"\bwith\s+(?:an?\s+|some\s+)?{_PICTURE}{_END}|\b{_DOC_EN}\s+with\s+{_PICTURE}\b",
)
PREFERENCES: tuple[Rule, ...] = (
    _rule("prefer_recent", _RECENT_WORDS, ("最新", "最近", "latest", "newest", "recent")),
    _rule("prefer_official", _OFFICIAL_WORDS, ("官方", "official")),
    _rule("prefer_has_image", _PICTURE_WORDS, ("图", " with ")),
)

_PLEASE = (
    r"(?:(?:please|kindly|just|now|(?:can|could|would|will) you|help me(?:\s+to)?"
    r"|i(?:'d|\s+would)?\s+(?:want|need|like)(?:\s+you)?(?:\s+to(?:\s+(?:have|see|get))?)?)[,\s]+){0,3}"
)
_SIZE = (
    r"(?:(?:an?|the|some|any|all|every|more|further|brief|short|quick|concise|detailed|general|"
    r"complete|full|high-level)\s+){0,4}"
)
_ACCOUNT = (
    rf"{_SIZE}(?:summary|overview|outline|explanation|description|introduction|comparison|"
    rf"tl;dr)\s+(?:of|on|about|for|to|between)"
)
_TEXTS = (
    rf"{_SIZE}(?:documents?|docs|documentation|articles?|pages?|sections?|passages?|guides?|materials?|information|info|details|news)"
    r"\s+(?:that\s+(?:is|are)\s+)?(?:about|on|regarding|concerning|(?<=guide )to)"
)
_LEADS = (
    rf"^(?P<said>{_PLEASE}(?:summari[sz]e|recap|explain|describe|discuss|outline|compare)"
    rf"(?:\s+(?:briefly|in\s+(?:detail|brief|short)|(?:to|for)\s+(?:me|us))){{0,2}}(?:\s+(?:{_ACCOUNT}|{_TEXTS}))?)(?=[\s:,])",
    rf"^(?P<said>{_PLEASE}(?:(?:show|tell|give|get|find|send|write|provide|list|search\s+for|look\s+(?:for|up))\s+(?:(?:me|us)\s+)?)?"
    rf"(?:{_ACCOUNT}|{_TEXTS}))(?=[\s:,])",
    rf"^(?P<said>{_PLEASE}(?:(?:show|tell|give|get|find|list)\s+(?:me|us)(?:\s+(?:about|all))?|list\s+(?:all|every)|tl;dr))(?=[\s:,])",
)
_TAILS = (
    rf"\w(?P<said>\s*[,;:.]\s*(?:please\s+)?(?:summari[sz]ed?|briefly|tl;dr|in\s+(?:short|brief)|{_SIZE}(?:summary|overview))){_END}",
    rf"^(?!.*\b(?:what|which|where|who|how|the|an?|is|are|in)\b).{{1,200}}?\w(?P<said>\s+(?:summary|overview)){_END}",
)
_PLEASE_ZH = (
    r"(?:请(?!求)|麻烦|劳驾|能否|能不能|可以|可否|帮我|帮忙|给我|为我|替我|我(?:想要?|要|需要)|你"
    r"|您){0,4}"
)
_SIZE_ZH = r"(?:简单|简要|简短|简洁|大致|大概|详细|具体|全面)?地?"
_TELL_ZH = (
    r"(?:总结|概括|概述|归纳|梳理|综述|介绍|说明|解释|描述|阐述|讲解|列出|列举|罗列|说说|讲讲|谈"
    r"谈|聊聊|对比|比较)"
)
_LEADS_ZH = (
    # 说明书, 解释器, 总结会
    rf"^(?P<said>{_PLEASE_ZH}{_SIZE_ZH}{_TELL_ZH}(?:一下|一遍|(?![书信器符法性会文员者度型表]))(?:关于|有关)?)",
    rf"^(?P<said>{_PLEASE_ZH}(?:查找?|查询|找|搜索?|检索|看)一下(?:关于|有关)?)",
    rf"^(?P<said>{_DOC}(?:里面?|中|内)?)(?=[\s,，:])",  # what is left of 近一周的文档
)
_TAILS_ZH = (
    (
        rf"^{_NO_HOW}.{{1,200}}?\w(?P<said>(?:的|\s|[,，。"
        rf"]|进行|做一?个){{1,3}}(?:总结|概括|概述|归纳|摘要|概要|简介|综述)(?:一下)?){_END}"
    ),
    rf"^{_NO_HOW}.{{1,200}}?\w(?P<said>(?:总结|概括|归纳|梳理|介绍|说明)一下){_END}",
)
# What is to be done with what is found.
COMMANDS: tuple[Rule, ...] = (
    _rule("command", _LEADS),
    _rule("command", _TAILS, ("summ", "brief", "overview", "tl;dr", "in short")),
    _rule("command", _LEADS_ZH),
    _rule("command", _TAILS_ZH, ("总结", "概", "归纳", "摘要", "简介", "综述", "一下")),
)


_OOXML = "application/vnd.openxmlformats-officedocument."

LANGUAGES = {
    "中文,简体中文,繁体中文,汉语,中文版,zh,zh_cn,chinese": "zh",
    "英文,英语,英文版,english": "en",
    "日文,日语,日文版,japanese": "ja",
    "韩文,韩语,韩文版,korean": "ko",
    "法文,法语,french": "fr",
    "德文,德语,german": "de",
    "西班牙文,西班牙语,spanish": "es",
    "俄文,俄语,russian": "ru",
}
# Content types as the loaders sniff them.
TYPES = {
    "pdf": "application/pdf",
    "word,docx": _OOXML + "wordprocessingml.document",
    "excel,xlsx,电子表格,spreadsheet": _OOXML + "spreadsheetml.sheet",
    "csv": "text/csv",
    "markdown,md": "text/markdown",
    "html,网页": "text/html",
    "txt,纯文本,plain text": "text/plain",
}
MEDIA_TYPES = {
    "图片,图像,image,picture": "image",
    "文本,text": "text",
    "视频,video": "video",
    "音频,audio": "audio",
}
NUMBERS = {
    "一": 1,
    "两": 2,
    "二": 2,
    "三": 3,
    "四": 4,
    "五": 5,
    "六": 6,
    "七": 7,
    "八": 8,
    "九": 9,
    "十": 10,
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
}
# The rules are written in simplified characters; these stand for traditional ones, character by
# character, so that places stay.
SIMPLIFIED = str.maketrans(
    "標籤來質圖檔資週個關於報僅麼裡內兩後發佈這過錄獻冊筆記頁從檢請幫語視頻電網純鍵詞總結紹說釋講談歸納對較綜簡詳體闡羅舉煩勞駕為給",
    "标签来质图档资周个关于报仅么里内两后发布这过录献册笔记页从检请帮语视频电网纯键词总结绍说释讲谈归纳对较综简详体阐罗举烦劳驾为给",
)
