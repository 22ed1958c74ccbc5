"""Finds the code, post, property or thing of a question that an extractive answer lacks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from rag_platform.answering.citations import split_quotes
from rag_platform.answering.constants import COLUMN_STANDING, MIN_COLUMNS
from rag_platform.answering.near_misses import (
    AUXILIARY,
    IMPLICIT_PROPERTY,
    NOUN_TAGS,
    VERB,
    Phrase,
    list_words,
    may_name,
    parse_clause,
)
from rag_platform.answering.quotable import read_layout
from rag_platform.ir import Hit
from rag_platform.protocols import Vectors
from rag_platform.retrieval.editions import find_foreign
from rag_platform.retrieval.signals import name_place, with_place
from rag_platform.text.markdown_blocks import cells
from rag_platform.text.names import find_command_words, is_whole_name
from rag_platform.text.scripts import HAN, has_han, simplify
from rag_platform.text.segmentation import chinese_dictionary, tag_word
from rag_platform.text.term_overlap import (
    ASKS_VERSION,
    VERSION_NUMBER,
    find_version_form,
    question_terms,
    question_words,
)
from rag_platform.text.terms import find_flags, stem_prefix

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
_ASKS_PROPERTY = re.compile(_PROPERTY, re.IGNORECASE)
_CODE = re.compile(r"[a-z]+[-_]?\d[\w-]*")  # letters and a number
# properties that a table may have as a column
_ASKS_COLUMN = re.compile(
    rf"{_PROPERTY}|\b(?:which|what|how many) (?!{VERB})(?:[\w'-]+ ){{0,2}}?([\w'-]+)(?= {VERB})",
    re.IGNORECASE,
)
# questions for one fact about a thing
_ASKS_FACT = re.compile(
    r"\b(?:who|when|where)\b|\bhow (?:many|much|long|often|old|tall|large|big|far|high|heavy)\b"
    rf"|^what(?:'s| {VERB})|谁|多[少久长大高重远]|几|何时|什么时候|哪[里儿天]|是什么",
    re.IGNORECASE,
)
# where an English question names its thing: after the verb, before the end, a participle or more
_LINK = "and|or|as|that|of|for|on|in|at|by|with|from|to|during|per|between|than|about|without|into"
_SUBJECT = rf"(?: (?!(?:{_LINK})\b)[a-z'-]+)* \Z"
_AFTER_VERB = re.compile(rf"\b{VERB}{_SUBJECT}")
_AFTER_AUXILIARY = re.compile(rf"\b(?:{AUXILIARY}){_SUBJECT}")
_PHRASE_END = re.compile(rf"(?: [\w'-]+)?\W*\Z| (?:\w+ed|held|kept|sold|paid|{_LINK})\b")
_PLAIN_PHRASE = re.compile(rf"(?!(?:{_LINK})\b)[a-z-]+ [a-z-]+(?<!ed)")
_NO_TOPIC = re.compile("[几哪谁何，]|多[少大]|什么")  # what follows is not what a question is about
# of what others qualify: no names and times of day, but also verbs
_HEAD_TAG = re.compile("n(?![rst])|[jsbv]|t(?!g)")
_CODES = "号码"  # end names of codes


def find_missing_code(question: str, cited: Sequence[Hit], passages: Sequence[Hit]) -> str:
    """A code of a question, as `B603`, that other passages or their titles have but not the cited
    ones; else "".
    """
    words = [word.text for word in question_words(question) if word.is_identifier]
    if not (codes := list(filter(_CODE.fullmatch, words))):
        return ""
    own, every = ("\n".join(map(with_place, hits)).casefold() for hits in (cited, passages))
    return next((code for code in codes if code in every and code not in own), "")


def find_missing_flag(question: str, cited: Sequence[Hit], passages: Sequence[Hit]) -> str:
    """A flag of a question that names the command of a passage by the whole name of its file, as
    `cp -b` that of cp.txt, where no cited passage of that command has it; else "".
    """
    words = find_command_words(question)
    if not words or not any(is_whole_name(hit.filename, words) for hit in passages):
        return ""
    own = {
        *find_flags("\n".join(with_place(it) for it in cited if is_whole_name(it.filename, words)))
    }
    return next((flag for flag in find_flags(question) if flag not in own), "")


def find_foreign_word(question: str, passages: Sequence[Hit]) -> str:
    """A word of a question that, of the passages, only those about other products have than the one
    it names, as `license`; empty otherwise.
    """
    if not (foreign := find_foreign(question, passages)):
        return ""
    own, others = (
        "\n".join(with_place(hit) for n, hit in enumerate(passages) if (n in foreign) == is_other)
        for is_other in (False, True)
    )
    for _, start, end in list_words(question):
        terms = question_terms(question[start:end])
        if not terms.find_in(own) and terms.find_in(others) == terms.terms:
            return question[start:end]
    return ""


def find_missing_property(question: str, answer: str, passages: Sequence[Hit]) -> str:
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
    texts = {n: simplify(with_place(hit)) for n, hit in enumerate(passages, 1)}
    about = {n: it for n, it in texts.items() if all(word.share_in(find(it)) for word in words)}
    if not about or question_terms(name).find_in("\n".join(about.values())):
        return ""
    own = "".join(quote for quote, n in split_quotes(answer, len(passages)) if n in about)
    return "" if has_han(name) and set(name.rstrip(_CODES)) & set(simplify(own)) else name


def find_missing_phrase(question: str, text: str, passages: Sequence[Hit]) -> str:
    """Two adjacent words of a question that name a thing, as `permit fee`, where the answer has the
    second, and no sentence of the passages, with their headings, has both; empty otherwise.
    """
    asked = parse_clause(question).phrases.items() if _ASKS_FACT.search(question) else ()
    phrases = {
        phrase: written
        for phrase, written in asked
        if _names_thing(phrase, written, question) and _has_word(text, phrase.head)
    }
    if not phrases:  # saves reading the passages
        return ""
    found = ((simplify(name_place(hit)), simplify(hit.chunk_text)) for hit in passages)
    for title, body in (("", text), *found):
        for unit in read_layout(body).units:
            sentence = f"{title}\n{unit.context}\n{body[unit.start : unit.end]}"
            for phrase in [it for it in phrases if all(_has_word(sentence, word) for word in it)]:
                del phrases[phrase]
    return next(iter(phrases.values()), "")


def _names_thing(phrase: Phrase, written: str, question: str) -> bool:
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
            and may_name(written.partition(" ")[0])
            and _AFTER_VERB.search(before)
            and _PHRASE_END.match(after)
        )
    return (
        not _NO_TOPIC.search(before)
        and not before[-1:].isdecimal()  # 年版 of 2024年版制度
        and has_han(phrase.head)
        and tag_word(phrase.modifier).startswith(NOUN_TAGS)
        and _HEAD_TAG.match(tag_word(phrase.head)) is not None
    )


def _has_word(text: str, word: str) -> bool:
    if has_han(word):
        return word in text
    return stem_prefix(word) in text.lower() and word in parse_clause(text).words


def _last_word(asked: re.Match[str] | None) -> str:
    """The last word of the group that matched; empty where it need not be named, or none did."""
    name = next(filter(None, asked.groups()), "") if asked else ""
    *before, last = chinese_dictionary().cut(name) if has_han(name) else (name,)
    last = before[-1] + last if before and last in _CODES else last  # 房间号
    return "" if len(last) < 2 or IMPLICIT_PROPERTY.fullmatch(last) else last


def find_missing_column(
    question: str, table: re.Match[str], passages: Sequence[Hit], embed: Embed | None
) -> str:
    """The column that a question asks for, where neither the table nor a title names it and no
    column is similar in meaning; empty otherwise, and without an embedder.
    """
    name = _last_word(_ASKS_COLUMN.search(question))
    texts = "\n".join([table[0], *map(name_place, passages)])
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


def lacks_name(question: str, text: str) -> bool:
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


def lacks_version(question: str, text: str) -> bool:
    """True where a question asks for a version, and the answer has none, or none beside the name of
    the thing whose version is needed.
    """
    form = find_version_form(question)
    if form is VERSION_NUMBER:
        asked = ASKS_VERSION.search(question.lower())  # a release may only have a name
        form = _VERSION if asked and "release" not in asked[0] else None
    return form is not None and not form.search(text)


def find_missing_post(question: str, text: str, cited: Sequence[Hit]) -> str:
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
    titles = "\n".join(map(name_place, cited))
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
        if tag == "nr" or not tag.startswith(NOUN_TAGS) or last[-1] in _NAME_CHARS:
            return True
    return False


def _list_ranks(text: str, post: str) -> list[list[str]]:
    """The ranks of each mention of a post, with at most a word between."""
    mention = rf"((?:(?:{_RANK})[ -]?(?:(?!{_RANK})[a-z]+ )?)*){post}"
    return [re.findall(_RANK, found[1]) for found in re.finditer(mention, text.lower())]
