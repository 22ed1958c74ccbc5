"""Detects extractive answers that miss the question: they are about the filter where it is about
the tank, speak of another day, place or post, or lack the property or a part that it asks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rag_platform.answering.citations import (
    find_cited,
    split_quotes,
    strip_marks,
    unescape_marks,
)
from rag_platform.answering.constants import COLUMN_STANDING, MIN_COLUMNS
from rag_platform.answering.extractive import count_own_words
from rag_platform.answering.quotable import read_layout
from rag_platform.ir import Hit, QueryIR
from rag_platform.protocols import Vectors
from rag_platform.retrieval.editions import find_foreign
from rag_platform.text.dates import MONTHS, find_days, read_han, write_alike
from rag_platform.text.markdown_blocks import cells
from rag_platform.text.passages import units
from rag_platform.text.plain_quotes import strip_markup
from rag_platform.text.scripts import HAN, HAN_DIGITS, has_han, is_wide, simplify
from rag_platform.text.segmentation import chinese_dictionary, tag_word
from rag_platform.text.stop_words import CHINESE_FUNCTION_WORDS, ENGLISH
from rag_platform.text.term_overlap import (
    ASKS_VERSION,
    VERSION_NUMBER,
    find_version_form,
    question_terms,
    question_words,
)
from rag_platform.text.terms import is_weak_term, meaning, stem, stem_prefix

Embed = Callable[[Sequence[str]], Vectors]  # unit vectors of texts
# posts
_POST = (
    r"\b(?:director|president|chair(?:man|woman|person)?|manager|treasurer|secretary|officer"
    r"|principal|dean|mayor|minister|governor|captain|coach|coordinator|caretaker|master"
    r"|engineer)s?\b|总监|经理|工程师|主[管任席编教]|书记|秘书|总[理统裁]|管理员|发言人|辅导员|教[练官]|[董理监]事长|值班长"
    r"|[院校馆局处科部厂所站队组楼社行会市省县州团军司庭]长"
)
# words that make a post another one
_RANK = (
    "managing|deputy|vice|assistant|associate|chief|senior|junior|副|总|首席|助理|代理|常务|高级"
)
_ASKS_HOLDER = re.compile(
    rf"\bwho(?:'s| is| was| are| were) (?:the |its |your |our )?((?:[\w'-]+ ){{0,3}}?(?:{_POST}))"
    rf"|([{HAN}]{{0,8}}(?:{_POST}))(?:现在|目前)?[是叫为由]谁"
    rf"|谁[是为]([^，。？]*?(?:{_POST}))[？?]?$",
    re.IGNORECASE,
)
# a capital inside a sentence, two capitalised words, @account, a word after `by`, a transliteration
_NAME = re.compile(
    rf"(?:(?<=[a-z,;({HAN}] )|(?<=[{HAN}]))\[?[A-Z][\w'’-]+|[A-Z][\w'’-]+ (?:[A-Z]\. )?[A-Z]\w+"
    rf"|(?<!\w)@\w+|(?:\b(?:by|authors?|maintainers?|copyright)|©)\W+\w+|[{HAN}]·[{HAN}]"
)
# 3.1, 2.x, v3, JDK 17, 企业版
_VERSION = re.compile(
    rf"\d\.[\dx]|\bv\d|(?:version|版本?) ?\d|(?-i:[A-Z])\w{{0,20}}[ -]?\d|[{HAN}]版(?!本)",
    re.IGNORECASE,
)
# last characters of Chinese words for people and organisations
_NAME_CHARS = (
    "司团部门处科室心会队组局院所校厂社行店台者方人员长师生户客友家民众理管任监服府盟王我你"
)
# ends of sentences, in Chinese also of clauses
_STATEMENT_END = re.compile(r"[.!?;](?:\s|\Z)|\n\n|[，。；！？]")
# `what is the maximum weight of ...`: the last word before the preposition is the property
_PROPERTY = (
    r"\bwhat(?:'s| is| was| are| were) (?:the|its|their) (?:[\w'-]+ ){0,3}?([\w'-]+)"
    r"(?= (?:of|for|on|in|at|by|with|from)\b)"
    rf"|的([{HAN}]{{2,8}}?)(?:分别|各)?[是为有](?:多|什么|谁|哪|几)"
)
_AUXILIARY = "do|does|did|can|should|must|will|would"
_VERB = rf"(?:is|was|are|were|has|have|had|{_AUXILIARY})\b"
_ASKS_PROPERTY = re.compile(_PROPERTY, re.IGNORECASE)
_CODE = re.compile(r"[a-z]+[-_]?\d[\w-]*")  # letters and a number
# properties that a table may have as a column
_ASKS_COLUMN = re.compile(
    rf"{_PROPERTY}|\b(?:which|what|how many) (?!{_VERB})(?:[\w'-]+ ){{0,2}}?([\w'-]+)(?= {_VERB})",
    re.IGNORECASE,
)
_HAN_NUMBER = f"[{HAN_DIGITS[1:]}十百][{HAN_DIGITS}十百]*"
# before what a question is about, and before what a sentence is about
_BEFORE_SUBJECT = re.compile(
    rf"\A\W*|\b(?:the|an?|our|my|of|for|if|{_VERB}) |如果|[，,？?]", re.IGNORECASE
)
_SENTENCE_START = re.compile(
    rf"(?:[\W\d_]|第{_HAN_NUMBER}[条條款项項]|[（(]?{_HAN_NUMBER}[、．.）)])*"
    r"(?:(?:the|an?|all|each|every|any|no|only)\s+)?",
    re.IGNORECASE,
)
_PRONOUN = re.compile(r"\b(?:it|its|them|they|that|this|these|those)\b", re.IGNORECASE)
_OF = re.compile(r" (?:of|for|in|by)(?: the| an?)? ", re.IGNORECASE)
# questions for one fact about a thing
_ASKS_FACT = re.compile(
    r"\b(?:who|when|where)\b|\bhow (?:many|much|long|often|old|tall|large|big|far|high|heavy)\b"
    rf"|^what(?:'s| {_VERB})|谁|多[少久长大高重远]|几|何时|什么时候|哪[里儿天]|是什么",
    re.IGNORECASE,
)
# where an English question names its thing: after the verb, before the end, a participle or more
_LINK = "and|or|as|that|of|for|on|in|at|by|with|from|to|during|per|between|than|about|without|into"
_SUBJECT = rf"(?: (?!(?:{_LINK})\b)[a-z'-]+)* \Z"
_AFTER_VERB = re.compile(rf"\b{_VERB}{_SUBJECT}")
_AFTER_AUXILIARY = re.compile(rf"\b(?:{_AUXILIARY}){_SUBJECT}")
_PHRASE_END = re.compile(rf"(?: [\w'-]+)?\W*\Z| (?:\w+ed|held|kept|sold|paid|{_LINK})\b")
_PLAIN_PHRASE = re.compile(rf"(?!(?:{_LINK})\b)[a-z-]+ [a-z-]+(?<!ed)")
_NO_TOPIC = re.compile("[几哪谁何，]|多[少大]|什么")  # what follows is not what a question is about
_NOUN_TAGS = ("n", "j", "s", "t", "b", "vn")  # tags of Chinese words that qualify others begin so
# of what others qualify: no names and times of day, but also verbs
_HEAD_TAG = re.compile("n(?![rst])|[jsbv]|t(?!g)")
# properties that an answer need not name: “it costs 3 euros” states a price
_IMPLICIT_PROPERTY = re.compile(
    r"(?:(?:nick)?name|term|type|kind|sort|way|reason|purpose|difference|meaning|number|amount"
    r"|quantit(?:y|ie)|value"
    r"|limit|maximum|minimum|default|rule|goal|aim|class|example|time|date|day|year|deadline|price"
    r"|cost|fee|size|dimension|material|place|location|address|owner|person|people|thing|result"
    r"|effect|problem|procedure|process|best|status|point|idea|as)e?s?"
    r"|[名昵]称|名字|[上下]限|作用|原因|目的|含义|意思|区别|时间|日期|地[址点]|过程|方[法式]|数量|价[格钱]|费用|单价|金额|例子|标准|负责人"
    r"|情况|内容|状态|位置|尺寸|材[质料]|规定|什么",
    re.IGNORECASE,
)
_TABLE = re.compile(r"(\|.*)\n\| ---.*\n((?:\|.*\n?)+)")
_HAN_RUN = re.compile(f"[{HAN}]+")
_CODES = "号码"  # end names of codes
_RUN = re.compile(rf"[A-Za-z](?:(?![{HAN}]|-\d+\.\d)[\w'’-])*|\d(?:[\d.,]*\d)?|[{HAN}]+")


class _Phrase(NamedTuple):
    """Two adjacent words, `production tokens`."""

    modifier: str
    head: str


class _Clause(NamedTuple):
    words: frozenset[str]
    phrases: dict[_Phrase, str]  # to the text of each


class _Sentence(NamedTuple):
    """A sentence, item or row, and the headings, introduction and header above it."""

    text: str
    above: str
    header: str = ""

    @property
    def words(self) -> frozenset[str]:
        return _parse_clause(self.text).words

    @property
    def known(self) -> frozenset[str]:
        return self.words | _parse_clause(self.above).words


def find_near_miss(
    question: str, answer: str, cited: Sequence[Hit], passages: Sequence[Hit]
) -> tuple[str, str] | None:
    """(what the question is about, what the answer is about instead); None where none is detected.

    A near miss: the question is about the tank; the sentence of the answer with most of its other
    words is about the filter; and the sentences about the tank have fewer of these words.
    """
    words = _parse_clause(question).words
    # 一年 and 一晚 say little
    told = {word for word in words if not has_han(word) or tag_word(word) not in ("m", "tg")}
    places = "\n".join(f"{hit.doc_title}\n{hit.source_uri}" for hit in passages)
    if not has_han(question):  # needs no Chinese words, whose dictionary takes 29 MiB
        places = _HAN_RUN.sub(" ", places)
    titles = _parse_clause(places).words
    # code names no thing that a sentence is about
    quoted = [it for it in _list_quoted(answer, cited) if not it.text.startswith("```")]
    for role, thing in _list_asked(question) if quoted else ():
        rest = told - titles - {thing}
        best = max(quoted, key=lambda it: len(rest & it.known))
        rival = _list_roles(best.text).get(role, "")
        is_other = rival and rival not in words and thing not in rival
        if not is_other or not rest & best.known or thing in best.known | titles:
            continue
        others = [it for hit in passages for it in _list_sentences(hit) if thing in it.known]
        is_topic = any(role or _list_roles(it.text).get("") == thing for it in others)
        fewer = all(len(rest & it.known) < len(rest & best.known) for it in others)
        names = _write_both(question, thing, best.text, rival)
        if is_topic and fewer and names:
            return names
    return None


def list_quoted(question: str, answer: str, passages: Sequence[Hit]) -> list[str]:
    """The sentences, items and rows, after their header, that an extractive answer quotes of its
    passages, without those that are part of another, such as the item `port` of a sentence with
    that word. One below a heading with the words of the question comes after that heading.
    """
    quoted = _list_quoted(answer, _list_cited(answer, passages))
    asked, texts = meaning(question), list[str]()
    for it in quoted:
        if not any(it.text != other.text and it.text in other.text for other in quoted):
            heading = it.above.rpartition("\n")[2]
            texts += [heading] if asked and meaning(heading) == asked else []
            texts.append(f"{it.header} {it.text}".strip())
    return list(dict.fromkeys(texts))


def _list_cited(answer: str, passages: Sequence[Hit]) -> list[Hit]:
    return [passages[n - 1] for n in sorted(find_cited(answer, len(passages)))]


def _list_quoted(answer: str, cited: Sequence[Hit]) -> list[_Sentence]:
    plain = _strip(answer)
    return [it for hit in cited for it in _list_sentences(hit) if it.text in plain]


def find_doubts(
    query: QueryIR, answer: str, passages: Sequence[Hit], embed: Embed | None = None
) -> tuple[str, ...]:
    """A warning of why an extractive answer may miss the question, or the part of it that seems
    unanswered; empty without a doubt.
    """
    parts = count_own_words(query)
    quotes = split_quotes(answer, len(passages)) if parts else []
    quoted = {quote: _read_quote(quote, passages[n - 1]) for quote, n in quotes}
    for number, (part, count) in enumerate(parts):
        part_query = replace(query, original=part)
        before = [other for _, other in parts[:number] if _refers_back(part)]
        own = [
            quote
            for quote, text in quoted.items()
            if count(text) and (not before or any(other(text) for other in before))
        ]
        if all(_check(part_query, quote, passages, embed) for quote in own):
            return (f"this part of the question may be unanswered: “{part.rstrip('?')}”",)
    return () if parts else _check(query, answer, passages, embed)


def _refers_back(part: str) -> bool:
    """True for a part of a question whose subject is in an earlier one."""
    if not has_han(part):
        return _PRONOUN.search(part) is not None
    tagged = chinese_dictionary().tag(simplify(part))
    words = ((word, tag) for word, tag in tagged if word not in CHINESE_FUNCTION_WORDS)
    return not any(tag[0] == "n" and has_han(word) for word, tag in words)


def _read_quote(quote: str, hit: Hit) -> str:
    """A quote with the headings above it."""
    text = _strip(quote)
    return "\n".join([text, *(it.above for it in _list_sentences(hit) if it.text in text)])


def _strip(answer: str) -> str:
    """The text of an answer as in its passages, without marks and markup."""
    return strip_markup(unescape_marks(strip_marks(answer)))


def _check(
    query: QueryIR, answer: str, passages: Sequence[Hit], embed: Embed | None
) -> tuple[str, ...]:
    """The first warning that applies to an extractive answer: it is about a neighbour, or
    another year, month, weekday or quarter; it lacks the code, post or thing that the question asks
    for; or no passage mentions the property asked for. `embed` compares that property with the
    columns of a table. Empty without a doubt.
    """
    cited = _list_cited(answer, passages)
    if other := (
        find_other_year(query.original, answer, cited)
        or find_other_date(query.original, answer, cited)
        or find_other_place(query.original, answer, passages)
        or find_near_miss(query.original, answer, cited, passages)
    ):
        return (f"the answer speaks of “{other[1]}”, the question of “{other[0]}”",)
    question, text = simplify(query.original), strip_marks(simplify(answer))
    if is_wide(question) != is_wide(text):
        return ()
    if _lacks_name(question, text):
        return ("the question asks who, and the answer has no name",)
    form = find_version_form(question)
    asked = ASKS_VERSION.search(question.lower())  # a release may only have a name
    if form is VERSION_NUMBER:
        form = _VERSION if asked and "release" not in asked[0] else None
    if form and not form.search(text):
        return ("the question asks for a version, and the answer has none",)
    table = _TABLE.match(answer)
    missing = (
        _find_missing_code(question, cited, passages)
        or _find_missing_post(question, text, cited)
        or _find_foreign_word(question, passages)
    )
    if not missing and not query.rewrites:  # the passages may have a word of a phrasing for it
        missing = _find_missing_phrase(question, text, passages) or (
            _find_missing_column(question, table, passages, embed)
            if table
            else _find_missing_property(question, answer, passages)
        )
    return (f"what was found does not speak of “{missing}”",) if missing else ()


def _name_place(hit: Hit) -> str:
    return f"{hit.doc_title}\n{hit.section_path}\n{hit.source_uri}"


def _find_missing_code(question: str, cited: Sequence[Hit], passages: Sequence[Hit]) -> str:
    """A code of a question, as `B603`, that other passages or their titles have but not the cited
    ones; else "".
    """
    words = [word.text for word in question_words(question) if word.is_identifier]
    if not (codes := list(filter(_CODE.fullmatch, words))):
        return ""
    own, every = (
        "\n".join(f"{_name_place(hit)}\n{hit.chunk_text}" for hit in hits).casefold()
        for hits in (cited, passages)
    )
    return next((code for code in codes if code in every and code not in own), "")


def _find_foreign_word(question: str, passages: Sequence[Hit]) -> str:
    """A word of a question that, of the passages, only those about other products have than the one
    it names, as `license`; empty otherwise.
    """
    if not (foreign := find_foreign(question, passages)):
        return ""
    own, others = (
        "\n".join(
            f"{_name_place(hit)}\n{hit.chunk_text}"
            for n, hit in enumerate(passages)
            if (n in foreign) == is_other
        )
        for is_other in (False, True)
    )
    for _, start, end in _list_words(question):
        terms = question_terms(question[start:end])
        if not terms.find_in(own) and terms.find_in(others) == terms.terms:
            return question[start:end]
    return ""


def _find_missing_property(question: str, answer: str, passages: Sequence[Hit]) -> str:
    """The property that a question asks for, where the passages about its thing do not mention it;
    empty otherwise, and without such passages. In Chinese only of things with an identifier: about
    others, too many sentences state a property without its word.
    """
    asked = _ASKS_PROPERTY.search(question)
    name = _last_word(asked)
    if asked is None or not name:
        return ""
    thing = question[: asked.start()] if has_han(name) else question[asked.end() :]
    if has_han(name) and not re.search("[A-Za-z0-9]", thing):
        return ""
    find = question_terms(thing).find_in
    words = [word for word in question_words(thing) if word.weight >= 1]  # no parts of identifiers
    texts = {
        n: simplify(f"{_name_place(hit)}\n{hit.chunk_text}") for n, hit in enumerate(passages, 1)
    }
    about = {n: it for n, it in texts.items() if all(word.share_in(find(it)) for word in words)}
    if not about or question_terms(name).find_in("\n".join(about.values())):
        return ""
    own = "".join(quote for quote, n in split_quotes(answer, len(passages)) if n in about)
    return "" if has_han(name) and set(name.rstrip(_CODES)) & set(simplify(own)) else name


def _find_missing_phrase(question: str, text: str, passages: Sequence[Hit]) -> str:
    """Two adjacent words of a question that name a thing, as `permit fee`, where the answer has the
    second, and no sentence of the passages, with their headings, has both; empty otherwise.
    """
    asked = _parse_clause(question).phrases.items() if _ASKS_FACT.search(question) else ()
    phrases = {
        phrase: written
        for phrase, written in asked
        if _names_thing(phrase, written, question) and _has_word(text, phrase.head)
    }
    if not phrases:  # saves reading the passages
        return ""
    found = ((simplify(_name_place(hit)), simplify(hit.chunk_text)) for hit in passages)
    for title, body in (("", text), *found):
        for unit in read_layout(body).units:
            sentence = f"{title}\n{unit.context}\n{body[unit.start : unit.end]}"
            for phrase in [it for it in phrases if all(_has_word(sentence, word) for word in it)]:
                del phrases[phrase]
    return next(iter(phrases.values()), "")


def _names_thing(phrase: _Phrase, written: str, question: str) -> bool:
    """True where the first of two words qualifies the second: in Chinese a noun before a noun or
    verb (国庆节放假), in English a word without capitals in the phrase after the first verb, before
    its infinitive (`run` of `does the contract run`).
    """
    before, _, after = question.partition(written)
    if not has_han(written):
        plain = _PLAIN_PHRASE.fullmatch(written)  # of the rest, texts say `it`
        is_verb = not after.strip(" ?") and _AFTER_AUXILIARY.search(before)
        return bool(
            plain
            and not is_verb
            and _may_name(written.partition(" ")[0])
            and _AFTER_VERB.search(before)
            and _PHRASE_END.match(after)
        )
    return (
        not _NO_TOPIC.search(before)
        and not before[-1:].isdecimal()  # 年版 of 2024年版制度
        and has_han(phrase.head)
        and tag_word(phrase.modifier).startswith(_NOUN_TAGS)
        and _HEAD_TAG.match(tag_word(phrase.head)) is not None
    )


def _has_word(text: str, word: str) -> bool:
    if has_han(word):
        return word in text
    return stem_prefix(word) in text.lower() and word in _parse_clause(text).words


def _last_word(asked: re.Match[str] | None) -> str:
    """The last word of the group that matched; empty where it need not be named, or none did."""
    name = next(filter(None, asked.groups()), "") if asked else ""
    *before, last = chinese_dictionary().cut(name) if has_han(name) else (name,)
    last = before[-1] + last if before and last in _CODES else last  # 房间号
    return "" if len(last) < 2 or _IMPLICIT_PROPERTY.fullmatch(last) else last


def _find_missing_column(
    question: str, table: re.Match[str], passages: Sequence[Hit], embed: Embed | None
) -> str:
    """The column that a question asks for, where neither the table nor a title names it and no
    column is similar in meaning; empty otherwise, and without an embedder.
    """
    name = _last_word(_ASKS_COLUMN.search(question))
    texts = "\n".join([table[0], *map(_name_place, passages)])
    if embed is None or not name or question_terms(name).find_in(simplify(texts)):
        return ""
    columns = [cell for cell in cells(table[1]) if cell]
    return name if len(columns) >= MIN_COLUMNS and not _matches_any(name, columns, embed) else ""


def _matches_any(name: str, columns: Sequence[str], embed: Embed) -> bool:
    """True where a name is much nearer to one of the columns than the columns are to each other."""
    vectors = embed([name, *columns])
    cosines = vectors[1:] @ vectors[1:].T
    others = cosines[~np.eye(len(columns), dtype=bool)]
    best = float((vectors[1:] @ vectors[0]).max())
    return best >= float(others.mean() + COLUMN_STANDING * others.std())


def _lacks_name(question: str, text: str) -> bool:
    """True where a question asks for the holder of a post, and the answer names no person that the
    question does not name.
    """
    if not _ASKS_HOLDER.search(question):
        return False
    asked = question.lower()
    return not any(
        found[0].strip("[").lower() not in asked for found in _NAME.finditer(text)
    ) and not any(
        word not in asked and tag.startswith("nr")
        for run in re.findall(f"[{HAN}]+", text)
        for word, tag in chinese_dictionary().tag(run)
    )


def _find_missing_post(question: str, text: str, cited: Sequence[Hit]) -> str:
    """The post whose holder a question asks for, where the answer only speaks of others, such as a
    deputy's; empty otherwise.
    """
    holder = _ASKS_HOLDER.search(question)
    if holder is None:
        return ""
    asked: str = next(filter(None, holder.groups())).lower().rpartition("的")[2]
    [*_, found] = re.finditer(_POST, asked)
    post = re.sub("(?<=chair)(?:wo)?man$|(?<=chair)person$|s$", "", found[0])
    [*_, ranks] = _list_ranks(asked, post)
    words = question_words(re.sub(f"{_RANK}|{_POST}", " ", asked))
    find = question_terms(asked).find_in
    titles = "\n".join(map(_name_place, cited))
    for statement in _STATEMENT_END.split(text):
        named = find(f"{titles}\n{statement}")
        if (
            ranks in _list_ranks(statement, post)
            and all(it.share_in(named) for it in words)
            and (asked != found[0] or _stands_alone(post, statement))
        ):
            return ""
    return asked


def _stands_alone(post: str, statement: str) -> bool:
    """True where a statement has a post that no Chinese noun qualifies, not `财务总监` for `总监`;
    `公司` and names do not qualify it.
    """
    for before in re.split(post, statement, flags=re.IGNORECASE)[:-1]:
        run = re.search(f"[{HAN}]+\\Z", before)
        last, tag = list(chinese_dictionary().tag(run[0]))[-1] if run else ("", "")
        if tag == "nr" or not tag.startswith(_NOUN_TAGS) or last[-1] in _NAME_CHARS:
            return True
    return False


def _list_ranks(text: str, post: str) -> list[list[str]]:
    """The ranks of each mention of a post, with at most a word between."""
    mention = rf"((?:(?:{_RANK})[ -]?(?:(?!{_RANK})[a-z]+ )?)*){post}"
    return [re.findall(_RANK, found[1]) for found in re.finditer(mention, text.lower())]


def _list_sentences(hit: Hit) -> Iterator[_Sentence]:
    for unit in read_layout(hit.chunk_text).units:
        above = [hit.section_path, unit.context, *(name for _, name in unit.headings)]
        text = strip_markup(hit.chunk_text[unit.start : unit.end]).strip()
        if text:
            header = " ".join(cells(hit.chunk_text[slice(*unit.header)])) if unit.header else ""
            yield _Sentence(text, "\n".join(above), header)


def _list_asked(question: str) -> Iterator[tuple[str, str]]:
    """The things that a question may be about, each with the word before its `of` or the like;
    empty for the subject.
    """
    words = [("", 0, 0), *_list_words(question)]
    subjects = {found.end() for found in _BEFORE_SUBJECT.finditer(question)}
    for (before, _, end), (word, start, _) in pairwise(words):
        if before and _OF.fullmatch(question, end, start):
            yield before, word
        if start in subjects:
            yield "", word


def _list_roles(text: str) -> dict[str, str]:
    """The words of a sentence by the word before their `of` or the like, and its first by "", if no
    comma follows it as in `Ideally, ...`.
    """
    found = _SENTENCE_START.match(text)
    first = found.end() if found else 0
    words = [it for it in _list_words(text) if it[1] >= first]
    roles = {
        one: other
        for (one, _, end), (other, start, _) in pairwise(words)
        if _OF.fullmatch(text, end, start)
    }
    if words and words[0][1] == first and not text.startswith((",", "，"), words[0][2]):
        roles[""] = words[0][0]
    return roles


def _may_name(word: str) -> bool:
    """True for words that may begin the name of a thing: no numbers, in English no words without a
    topic (`before`, `some`), in Chinese only nouns, of which times name no thing.
    """
    if not has_han(word):
        return not word.isdigit() and word.lower() not in ENGLISH
    tag = tag_word(word)
    return tag.startswith(_NOUN_TAGS) and tag != "t"


def _write_both(question: str, thing: str, text: str, rival: str) -> tuple[str, str] | None:
    """A thing and its rival as their texts write them, with the word that follows, if it is the
    same; None for words that name no things, such as the label `Date`.
    """
    if _IMPLICIT_PROPERTY.fullmatch(_write(text, rival)):
        return None
    own, other = _find_heads(question, thing), _find_heads(text, rival)
    for head in (own.keys() & other.keys()) - ENGLISH:
        return own[head], other[head]
    names = _write(question, thing), _write(text, rival)
    return names if all(map(_may_name, names)) else None


def _find_heads(text: str, word: str) -> dict[str, str]:
    """The words that follow a word, each with both as the text writes them."""
    phrases = _parse_clause(text).phrases.items()
    return {phrase.head: written for phrase, written in phrases if phrase.modifier == word}


def _write(text: str, word: str) -> str:
    return next(text[start:end] for it, start, end in _list_words(text) if it == word)


@lru_cache(maxsize=2048)
def _parse_clause(text: str) -> _Clause:
    """The words of a clause, and its pairs of adjacent words."""
    words = list(_list_words(text))
    return _Clause(
        frozenset(word for word, _, _ in words),
        {
            _Phrase(one, two): text[start:end]
            for (one, start, ended), (two, begins, end) in pairwise(words)
            if begins - ended <= 1 and not text[ended:begins].strip()
        },
    )


def _list_words(text: str) -> Iterator[tuple[str, int, int]]:
    """The words that carry meaning, Latin ones stemmed, each with its start and end."""
    for run in _RUN.finditer(text):
        if has_han(run[0]):
            end = run.start()
            for word in chinese_dictionary().cut(simplify(run[0])):
                start, end = end, end + len(word)
                if len(word) > 1 and word not in CHINESE_FUNCTION_WORDS:
                    yield word, start, end
        elif not is_weak_term(word := stem(run[0].lower())):
            yield word, run.start(), run.end()


# --- dates ---------------------------------------------------------------------------------------

# months, weekdays and quarters are a closed class: unlike `staging` and `production`, none is
# another word for a neighbour
_DAYS = "mon tue wed thu fri sat sun".split()
_ORDINALS = "first second third fourth".split()
_MONTH_NAME = (
    r"jan(?:uary)?|feb(?:ruary)?|march|apr(?:il)?|june?|july?"
    r"|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"
    r"|(?-i:(?<=[a-z\d,(|/-] )May|May(?= \d))"  # not `May I`
)
# months, weekdays and quarters, each with its number or name as a group
_UNITS = (
    re.compile(
        rf"\b({_MONTH_NAME})\b|(?<![\d.])(1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九])月"
        r"|(?<!\d)(?:19|20)\d\d[-/.](1[0-2]|0?[1-9])(?!\d)",
        re.IGNORECASE,
    ),
    re.compile(
        r"\b(mon|tues|wednes|thurs|fri|satur|sun)days?\b"
        r"|(?:星期|(?<![一两])周|礼拜)([一二三四五六日天])(?!次)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\bq([1-4])(?!\w)|\b({'|'.join(_ORDINALS)}) quarter\b|([一二三四1-4])季度",
        re.IGNORECASE,
    ),
)
_ASKED_YEAR = re.compile(
    r"(?<!\d)((?:19|20)\d\d) ?年|\b(?:in |fy ?|fiscal (?:year )?)((?:19|20)\d\d)\b", re.I
)
_CALENDAR_YEAR = re.compile(r"(?<![\d.,])(?:19|20)\d\d(?![\d,]|\.\d)")
_SPAN = re.compile(
    r"[^\w\n]*?(to|through|until|till|and|[至到和、~～—–-])?[^\w\n]*(?:第|每)?", re.IGNORECASE
)
_Dates = list[tuple[re.Match[str], int]]  # each with its number
# what makes a day the end of a span, or one of several days of a month
_SPAN_AFTER = re.compile(
    r"(?:[（(][^（）()\n]{0,10}[）)])? ?(?:to|through|until|till|[至到]|[以之]?[前后起]|止|截"
    r"|(?:[~～—–-]|,? ?(?:and|&)|[,，、和及]) ?\d\d?(?![\d:点]))",
    re.IGNORECASE,
)
_SPAN_BEFORE = re.compile(
    r"(?:\b(?:before|after|from|since|until|till|by|through|to|than|on or)|[自从由于至到~～—]"
    r"|\d ?(?:[–,、-]|and|or|&)) ?(?:(?:19|20)\d\d ?年)?\Z",
    re.IGNORECASE,
)
_SPAN_WORD = re.compile(
    r"\b(?:deadline|due|valid|effective|expir|(?:start|begin|end|open|clos)(?:s|es|ing)?\b)"
    r"|截止|有效|生效|开始|结束",
    re.IGNORECASE,
)
# another closed class: countries (but not the own one, which texts leave out), cities (but not that
# of a head office), provinces
_PLACE = re.compile(
    "(日本|[韩美英法德泰]国|新加坡|马来西亚|越南|印尼|印度|菲律宾|俄罗斯|加拿大|澳大利亚|新西兰|意大利|西班牙|葡萄牙|荷兰|瑞[士典]|巴西"
    "|墨西哥|阿联酋|沙特|土耳其)|((?:北京|上海|天津|重庆|[广杭苏郑兰福]州|深圳|南[京昌宁]|成都|武汉|西[安宁]|长[沙春]|青岛|大连|厦门|宁波|合肥"
    "|济南|昆明|贵阳|太原|沈阳|哈尔滨|石家庄|海口)(?!总[部公]))|([河湖海]南|[河湖]北|山[东西]|广[东西]|江[苏西]|浙江|安徽|福建|四川|云南"
    "|贵州|陕西|甘肃|辽宁|吉林)"
)
_OTHERS = re.compile("其[他它余餘][国國城省地各]")
# words that hold for every unit, or for some that are not named
_EVERY = re.compile(
    r"\b(?:daily|(?:every|each|any) (?:day|month|quarter)|week(?:day|end)s?"
    r"|(?:work|business )(?:ing)? ?days?)\b|每[天日月季]|工作日|周末",
    re.IGNORECASE,
)


def find_other_date(question: str, answer: str, cited: Sequence[Hit]) -> tuple[str, str] | None:
    """(the day, month, weekday or quarter of the question, another one in the answer), where
    neither the answer nor a title of the passages that it cites has the former, or the sentences
    that have it share fewer words with the question than one that has another; None otherwise.
    """
    question = simplify(question)
    dates = [(find, asked) for find in _FINDERS if (asked := find(question))]
    if not dates:
        return None
    own = simplify(write_alike(answer, question))
    above = simplify("\n".join(map(_name_place, cited)))
    rows = "\n".join(line for line in own.splitlines() if line.startswith("|"))
    if dates[0][0] is _find_days and _is_open(f"{own}\n{above}"):
        return None
    for find, [(written, number), *others] in dates:
        found = [] if others else find(f"{own}\n{above}")
        # a sentence beside a schedule holds for none of its days
        if not found or _EVERY.search(rows if find(rows) else own):
            continue
        if number not in _list_numbers(found):
            return written[0], found[0][0][0]
        if number in _list_numbers(find(above)):
            continue
        rest = meaning(question.replace(written[0], " "))
        if other := _find_nearest_date(own, find, number, rest):
            return written[0], other
    return None


def _find_nearest_date(
    text: str, find: Callable[[str], _Dates], number: int, words: set[str]
) -> str:
    """The date in the sentence with most of the words; "" if that has the date with this number, or
    one with as many words does.
    """
    best, other = 0, ""
    for unit in units(text):
        sentence = text[unit.start : unit.end]
        inside = find(sentence)
        shared = len(words & meaning(f"{unit.context}\n{sentence}"))
        has_it = number in _list_numbers(inside)
        if inside and shared > best:
            best, other = shared, "" if has_it else inside[0][0][0]
        elif shared == best and has_it:
            other = ""
    return other


def find_other_place(question: str, answer: str, passages: Sequence[Hit]) -> tuple[str, str] | None:
    """(the place of a Chinese question, another one of its kind in the answer), where no passage
    has the former and the answer tells of no other ones (其他城市); None otherwise.
    """
    asked = set(_list_places(question))
    if len(asked) != 1 or _OTHERS.search(answer):
        return None
    [(kind, place)] = asked
    other = next((name for its, name in _list_places(answer) if its == kind), None)
    texts = (f"{_name_place(hit)}\n{hit.chunk_text}" for hit in passages)
    if other is None or (kind, place) in _list_places("\n".join(texts)):
        return None
    return place, other


def _list_places(text: str) -> list[tuple[int | None, str]]:
    return [(it.lastindex, it[0]) for it in _PLACE.finditer(simplify(text))]


def find_other_year(question: str, answer: str, cited: Sequence[Hit]) -> tuple[str, str] | None:
    """(the year of the question, the first one of the answer), where neither the answer nor the
    cited passages have the former; None otherwise.
    """
    asked = list(_ASKED_YEAR.finditer(question))
    if len(asked) != 1:
        return None
    year = asked[0][1] or asked[0][2]
    texts = (f"{_name_place(hit)}\n{hit.chunk_text}" for hit in cited)
    other = _CALENDAR_YEAR.search(answer)
    held = "\n".join((answer, *texts))
    return (year, other[0]) if other and year not in held else None


def _list_numbers(found: _Dates) -> set[int]:
    """The numbers of the units, and of all those between two that a range joins."""
    numbers = {number for _, number in found}
    for (one, first), (other, last) in pairwise(found):
        joint = _find_joint(one, other)
        if joint and first < last:
            numbers.update(range(first, last))
        elif joint and joint[1]:  # over the end of the year or week
            numbers.update((*range(first, 13 * 31), *range(last)))
    return numbers


def _find_units(pattern: re.Pattern[str], text: str) -> _Dates:
    return [(match, _number(match)) for match in pattern.finditer(text)]


def _find_days(text: str) -> _Dates:
    """Days with numbers that ascend in a year."""
    return [(match, 31 * month + day) for match, (month, day) in find_days(text)]


def _is_open(text: str) -> bool:
    """True if a day is the beginning or end of a time whose other end is no day."""
    days = [match for match, _ in _find_days(text)]
    joined = [pair for pair in pairwise(days) if _find_joint(*pair)]
    first, last = {one for one, _ in joined}, {other for _, other in joined}
    return any(
        (it not in first and _SPAN_AFTER.match(text, it.end()))
        or (
            not (it in first or it in last)
            and (
                _SPAN_BEFORE.search(text, max(it.start() - 20, 0), it.start())
                or _SPAN_WORD.search(text, max(it.start() - 40, 0), it.end() + 20)
            )
        )
        for it in days
    )


def _find_joint(one: re.Match[str], other: re.Match[str]) -> re.Match[str] | None:
    return _SPAN.fullmatch(one.string, one.end(), other.start())


_FINDERS: tuple[Callable[[str], _Dates], ...] = (
    _find_days,
    *(partial(_find_units, it) for it in _UNITS),
)


def _number(match: re.Match[str]) -> int:
    word = next(filter(None, match.groups())).lower()
    if has_han(word):
        return 7 if word in "日天" else int(read_han(word))
    if word.isdecimal():
        return int(word)
    names = next(it for it in (MONTHS, _DAYS, _ORDINALS) if any(map(word.startswith, it)))
    return next(n for n, name in enumerate(names, 1) if word.startswith(name))
