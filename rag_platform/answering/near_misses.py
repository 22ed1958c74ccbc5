"""Tells where an answer of quotes is beside what was asked: it is about sandbox tokens, where the
question is about production tokens, has no name where that asks who, or speaks of a pump, but not
of its weight.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rag_platform.answering.constants import COLUMN_STANDING, MIN_COLUMNS, READ_HITS
from rag_platform.answering.contradictions import split_clauses
from rag_platform.ir import Hit, QueryIR
from rag_platform.protocols import Vectors
from rag_platform.text.markdown_blocks import cells
from rag_platform.text.passages import units
from rag_platform.text.plain_quotes import plain
from rag_platform.text.scripts import HAN, has_han, is_wide, simplify
from rag_platform.text.segmentation import chinese_dictionary
from rag_platform.text.stop_words import CHINESE_FUNCTION_WORDS
from rag_platform.text.term_overlap import question_terms, question_words
from rag_platform.text.terms import beginning, is_weak_term, meaning, stem

Embed = Callable[[Sequence[str]], Vectors]  # unit vectors of texts
# asks for a name, not for those of a kind as `who may` and `who approves` do
_ASKS_NAME = re.compile(
    r"\bwho (?:\w+ly )?(?:(?:co-?)?founded|wrote|created|invented|designed|developed|made|built"
    r"|started|published|maintains?|sponsors?|sponsored|funds?|owns?|leads|chairs)\b"
    r"|\bwho (?:is|was|are|were) [^.?!]*\b(?:author|founder|creator|inventor|maintainer|sponsor"
    r"|designer|developer|director|president|chair|ceo)s?\b|谁",
    re.IGNORECASE,
)
# a post, whose holder a text names beside it
_POST = (
    r"\b(?:director|president|chair(?:man|woman|person)?|c[eft]o|manager|treasurer|secretary|officer"
    r"|head|principal|dean|mayor|minister|governor|captain|coach|coordinator|caretaker|master)s?\b"
    r"|总监|经理|主[管任席编教]|书记|秘书|总[理统裁]|管理员|发言人|辅导员|教[练官]|[董理监]事长|值班长"
    r"|[院校馆局处科部厂所站队组楼社行会市省县州团军司庭]长"
)
_ASKS_HOLDER = re.compile(
    rf"\bwho(?:'s| is| was| are| were) (?:the |its |your )?(?:[\w'-]+ ){{0,3}}?({_POST})"
    rf"|({_POST})(?:现在|目前)?[是叫为]谁|谁[是为][^，。？]*?({_POST})[？?]?$",
    re.IGNORECASE,
)
# capitals inside a sentence, two of them, an account, what stands behind `by`, a foreign name
_NAME = re.compile(
    rf"(?:(?<=[a-z,;({HAN}] )|(?<=[{HAN}]))\[?[A-Z][\w'’-]+|[A-Z][\w'’-]+ (?:[A-Z]\. )?[A-Z]\w+"
    rf"|(?<!\w)@\w+|(?:\b(?:by|authors?|maintainers?|copyright)|©)\W+\w+|[{HAN}]·[{HAN}]"
)
# how the words end that persons and organisations are called by
_CALLED = "司团部门处科室心会队组局院所校厂社行店台者方人员长师生户客友家民众理管任监服府盟王我你"
# between what tells of one post and of another: sentences, in Chinese their parts
_SAID_TOGETHER = re.compile(r"[.!?;](?:\s|\Z)|\n\n|[，。；！？]")
_ASKS_FIGURE = re.compile(
    r"\bhow (?:many|much(?! \w+er\b)|long|old|tall|heavy|far)\b|\bwhat is the (?:price|cost)\b"
    r"|\bwhat (?:does|do|did|will|would) [^.?!]* cost\b"
    r"|多少|多[久长大高重远]|几[个次天年月周种人名台件元倍岁层米]",
    re.IGNORECASE,
)
# a number that is no part of a name, or what stands for one
_FIGURE = re.compile(
    r"(?<![A-Za-z\d_/.#-])[^\w\s]?\d|[零二两三四五六七八九十百半]|[不无]限|免费|永久|直到|立即|全部"
    r"|一(?=[个次天年月周种人名台件元倍岁层米日小分秒千万])|\b(?:zero|one|two|three|four|five|six"
    r"|seven|eight|nine|ten|eleven|twelve|twenty|thirty|dozen|hundred|thousand|million"
    r"|billion|half|single|once|twice|both|infinite|unlimited|as (?:many|long) as|free|no limit"
    r"|until|forever|indefinitely|permanent(?:ly)?|immediately)\b",
    re.IGNORECASE,
)
_ASKS_DATE = re.compile(
    r"\bwhen (?:was|were|did)\b|\b(?:what|which) (?:year|date|day)\b|哪一?[年天日]|几[号点月]"
    r"|(?:何时|什么时候).{0,6}?(?:[成创建]立|建成|发布|上线|开[业始会]|出版|交[货付]|到期|截止|签署|生效)",
    re.IGNORECASE,
)
_DATE = re.compile(
    r"(?<!\d)(?:1\d|20)\d\d(?!\d)|\d[:：]\d\d|\d ?[ap]\.?m\b|\b(?:in|since|version) v?\d+\.\d"
    r"|[\d零一二三四五六七八九十]\s*(?:[年月日号天周点时分]|世纪)|星期|周[一二三四五六日天]"
    r"|[每当][年月周天日季]|\b(?:(?:jan|febr)uary|march|april|may|june|july|august|october"
    r"|(?:sept|nov|dec)ember|(?:mon|tues|wednes|thurs|fri|satur|sun)day|today|noon|midnight"
    r"|(?:second|minute|hour|day|week|month|year)s?|century|BC|BP|AD)\b",
    re.IGNORECASE,
)
# what is asked for of a thing: the last of these words is a property that it may have
_PROPERTY = (
    r"\bwhat(?:'s| is| was| are| were) (?:the|its|their) (?:[\w'-]+ ){0,3}?([\w'-]+)"
    r"(?= (?:of|for|on|in|at|by|with|from)\b)"
)
_VERB = r"(?:is|was|are|were|do|does|did|can|has|have|had|should|must|will|would)\b"
_ASKS_PROPERTY = re.compile(_PROPERTY, re.IGNORECASE)
# the same of a row, whose table has a column for each
_ASKS_COLUMN = re.compile(
    rf"{_PROPERTY}|\b(?:which|what|how many) (?!{_VERB})(?:[\w'-]+ ){{0,2}}?([\w'-]+)(?= {_VERB})"
    rf"|的([{HAN}]{{2,8}}?)(?:分别|各)?[是为有](?:多|什么|谁|哪|几)",
    re.IGNORECASE,
)
# asked for without being called so: what has a price of 3 euros costs 3 euros
_UNNAMED = re.compile(
    r"(?:name|type|kind|sort|way|reason|purpose|difference|meaning|number|amount|quantit(?:y|ie)|value"
    r"|limit|maximum|minimum|default|rule|goal|aim|class|example|time|date|day|year|deadline|price"
    r"|cost|fee|size|place|location|address|owner|person|people|thing|result|effect|problem|procedure"
    r"|process|best|status|point|idea|as)e?s?"
    r"|名称|名字|作用|原因|目的|含义|意思|区别|时间|日期|地[址点]|过程|方[法式]|数量|价[格钱]|费用|单价|金额|例子|标准|负责人"
    r"|情况|内容|状态|位置",
    re.IGNORECASE,
)
_CODE = re.compile(r"^[ >]*(```+|~~~+).*?^[ >]*\1", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"(\|.*)\n\| ---.*\n((?:\|.*\n?)+)")
_MOST = re.compile(r"最\w|\b(?:\w+est|most)\b", re.IGNORECASE)  # what picks one of all rows
_MARK = re.compile(r"\]\([^()\s]*\)|\[\d+\]|https?://\S+")  # targets of links, marks of quotes
_RUN = re.compile(rf"[A-Za-z][\w'’-]*|\d(?:[\d.,]*\d)?|[{HAN}]+")


class _Phrase(NamedTuple):
    """Two words that stand beside each other; the first tells which of its kind is meant."""

    told: str
    kind: str


class _Clause(NamedTuple):
    words: frozenset[str]
    phrases: dict[_Phrase, str]  # as they are written


def find_near_miss(question: str, answer: str, passages: Sequence[Hit]) -> tuple[str, str] | None:
    """(what was asked about, what the answer speaks of instead), None where nothing tells.

    It is told where the question has `production tokens`, a sentence of the answer has other words
    of the question and `sandbox tokens`, and the passages speak of `production tokens` too, but
    nowhere with those other words.
    """
    asked = _read(question)
    rivals = list(_list_rivals(asked, answer))
    if not rivals:  # as of most answers: nothing more need be read
        return None
    headings = meaning("\n".join(f"{hit.doc_title}\n{hit.section_path}" for hit in passages))
    named = asked.words | headings
    rivals = [
        (phrase, other, clause)
        for phrase, other, clause in rivals
        if phrase.told not in headings and not any(other.told in word for word in named)
    ]
    if not rivals:
        return None
    told = "|".join({re.escape(beginning(phrase.told)) for phrase, _, _ in rivals})
    may_hold = re.compile(told, re.IGNORECASE).search
    clauses = (text for hit in passages for text in split_clauses(plain(hit.chunk_text)))
    known = [_read(text) for text in clauses if may_hold(simplify(text))]
    for phrase, other, clause in rivals:
        rest = (clause.words & asked.words) - {phrase.kind}
        if any(phrase in it.phrases for it in known) and not any(
            phrase.told in it.words and it.words & rest for it in known
        ):
            return asked.phrases[phrase], clause.phrases[other]
    return None


def find_doubts(
    query: QueryIR, answer: str, passages: Sequence[Hit], embed: Embed | None = None
) -> tuple[str, ...]:
    """Warnings where an answer of quotes has no name, number or date that the question asks for,
    begins with a table of which only the header fits, or is about the neighbour of what was asked,
    and where nothing found speaks of the property that the question asks for. `embed` tells
    whether a column of a table means it.
    """
    if beside := find_near_miss(query.original, answer, passages):
        return (f"the answer speaks of “{beside[1]}”, the question of “{beside[0]}”",)
    question, text = simplify(query.original), _MARK.sub("", _CODE.sub("", simplify(answer)))
    same_script = is_wide(question) == is_wide(text)
    if same_script and _lacks_name(question, text):
        return ("the question asks who, and the answer has no name",)
    asks, has = (_ASKS_DATE, _DATE) if _ASKS_DATE.search(question) else (_ASKS_FIGURE, _FIGURE)
    if asks.search(question) and not has.search(text):
        return ("the question asks for a number or a date, and the answer has none",)
    if table := _TABLE.match(answer):
        looked_for = question_terms(" ".join((question, *query.rewrites)))
        titles = [f"{hit.doc_title}\n{hit.section_path}" for hit in passages]
        above = looked_for.find_in("\n".join([table[1], *titles]))
        words = question_words(_MOST.sub("", question))
        if not all(word.share_in(above) for word in words) and not looked_for.find_in(table[2]):
            return ("the question names something that no row of the table has",)
    if query.rewrites or not same_script:
        return ()  # it may be called otherwise
    if asked_for := (
        _find_missing_column(question, table, passages, embed)
        if table
        else _find_unsaid(question, passages)
    ):
        return (f"what was found does not speak of “{asked_for}”",)
    return ()


def _find_unsaid(question: str, passages: Sequence[Hit]) -> str:
    """The property of a thing that a question asks for, where the first passages speak of the thing
    alone, which a name or a title tells; empty otherwise.
    """
    asked = _ASKS_PROPERTY.search(question)
    if asked is None or _UNNAMED.fullmatch(asked[1]):
        return ""
    thing = question[asked.end() :]
    titles = "\n".join(f"{hit.doc_title}\n{hit.source_uri}" for hit in passages[:READ_HITS])
    named = question_terms(thing).find_in(titles)
    # a weight of more than 1 is that of a name, of less that of its parts
    if any(word.weight == 1 and not word.share_in(named) for word in question_words(thing)):
        return ""
    shown = (
        f"{hit.doc_title}\n{hit.section_path}\n{hit.chunk_text}" for hit in passages[:READ_HITS]
    )
    return "" if question_terms(asked[1]).find_in("\n".join(shown)) else asked[1]


def _find_missing_column(
    question: str, table: re.Match[str], passages: Sequence[Hit], embed: Embed | None
) -> str:
    """What a question asks for of a row, where neither the table nor a title names it, and no
    column means it; empty otherwise, and without an embedder.
    """
    asked = _ASKS_COLUMN.search(question)
    name = next(filter(None, asked.groups()), "") if asked else ""
    if has_han(name):
        name = list(chinese_dictionary().cut(name))[-1]
    if embed is None or len(name) < 2 or _UNNAMED.fullmatch(name):
        return ""
    titles = (f"{hit.doc_title}\n{hit.section_path}" for hit in passages)
    if question_terms(name).find_in(simplify("\n".join([table[0], *titles]))):
        return ""
    columns = [cell for cell in cells(table[1]) if cell]
    return name if len(columns) >= MIN_COLUMNS and not _is_meant(name, columns, embed) else ""


def _is_meant(name: str, columns: Sequence[str], embed: Embed) -> bool:
    """True where a name is much nearer to one of the columns than these are to each other."""
    vectors = embed([name, *columns])
    near = vectors[1:] @ vectors[1:].T
    others = near[~np.eye(len(columns), dtype=bool)]
    best = float((vectors[1:] @ vectors[0]).max())
    return best >= float(others.mean() + COLUMN_STANDING * others.std())


def _lacks_name(question: str, text: str) -> bool:
    """True where a question asks who, and the answer has no name; none beside the post whose holder
    is asked for.
    """
    holder = _ASKS_HOLDER.search(question)
    if not holder and not _ASKS_NAME.search(question):
        return False
    said = re.sub("`[^`\n]+`", "", text)
    if holder and not _TABLE.match(text):
        post = next(filter(None, holder.groups())).lower()
        with_post = [part for part in _SAID_TOGETHER.split(said) if post in part.lower()]
        said = "\n".join(with_post) or said
    return not _holds_name(question, said, person=bool(holder))


def _holds_name(question: str, text: str, *, person: bool = False) -> bool:
    """True where a text names a person, or an organisation unless it must be a person, whom the
    question does not name.
    """
    asked = question.lower()
    return any(found[0].strip("[").lower() not in asked for found in _NAME.finditer(text)) or any(
        word not in asked
        and (
            kind.startswith("nr")
            or (not person and (kind.startswith("nt") or (kind[0] in "nx" and word[-1] in _CALLED)))
        )
        for run in re.findall(f"[{HAN}]+", text)
        for word, kind in chinese_dictionary().tag(run)
    )


def _list_rivals(asked: _Clause, answer: str) -> Iterator[tuple[_Phrase, _Phrase, _Clause]]:
    """(a phrase of the question, its rival in the answer, the clause with that): the sentence does
    not have the first, and the clause has more of the question than what both are about.
    """
    for unit in units(answer) if asked.phrases else ():
        clauses = [_read(text) for text in split_clauses(plain(answer[unit.start : unit.end]))]
        named = set[str]().union(*(clause.words for clause in clauses))
        for clause in clauses:
            for phrase in asked.phrases:
                if phrase.told not in named and (clause.words & asked.words) - {phrase.kind}:
                    for other in clause.phrases:
                        if _is_rival(phrase, other):
                            yield phrase, other, clause


def _is_rival(phrase: _Phrase, other: _Phrase) -> bool:
    """True where two different words, written alike, tell things of one kind apart."""
    one, two = phrase.told, other.told
    return (
        phrase.kind == other.kind
        and one not in two
        and two not in one
        and (has_han(one), one.isdigit()) == (has_han(two), two.isdigit())
    )


def _read(text: str) -> _Clause:
    """The words of a clause, and those beside each other."""
    words = list(_words(text))
    return _Clause(
        frozenset(word for word, _, _ in words),
        {
            _Phrase(one, two): text[start:end]
            for (one, start, ended), (two, begins, end) in pairwise(words)
            if begins - ended <= 1 and not text[ended:begins].strip()
        },
    )


def _words(text: str) -> Iterator[tuple[str, int, int]]:
    """The words that carry meaning, Latin ones as stems, with their places."""
    for run in _RUN.finditer(text):
        if has_han(run[0]):
            end = run.start()
            for word in chinese_dictionary().cut(simplify(run[0])):
                start, end = end, end + len(word)
                if len(word) > 1 and word not in CHINESE_FUNCTION_WORDS:
                    yield word, start, end
        elif not is_weak_term(word := stem(run[0].lower())):
            yield word, run.start(), run.end()
