"""Entries: texts that describe an option, a function or a file, below its name or beside it. The
name is a heading, a line of bold words, as HTML's definition lists become, a question with `Q:`
before it, or the first cell of a row. A member of a class is named with its class in questions
(`Reader.close`), but alone below the heading "Class Reader".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from rag_platform.ir import split_path
from rag_platform.text.markdown_blocks import ASKS, QUESTION
from rag_platform.text.names import name_words
from rag_platform.text.scripts import HAN, has_han, simplify
from rag_platform.text.terms import find_flags, is_weak_term, terms

# a line of bold words or code, as `f(**options)`, or of a question; a bold sentence is none
BOLD_LINE = re.compile(
    r"(?:\*\*(?:`[^`\n]+`|(?=\S)(?:(?!\*\*)[^\n])+(?<![.!。！，]))\*\*[:：]?[ \t]*(?=\n|\Z)"
    rf"|{QUESTION})"
)
_BOLD = re.compile(rf"^{BOLD_LINE.pattern}", re.MULTILINE)
_LINE = re.compile(rf"^(?:{BOLD_LINE.pattern}|#{{1,6}}[ \t]+(?P<heading>[^\n]+))", re.MULTILINE)
ROW_NAME = re.compile(r"[A-Za-z][\w-]*(?:\.\w[\w-]*)*", re.ASCII)
# a row whose first cell is a name, with or without arguments: `name`, **a-b** or @change(value)
_ROW = re.compile(
    rf"\|[ \t]*(?:[*_]{{2}})?`*[@:]?(?P<name>{ROW_NAME.pattern})"
    r"(?:\([^()|\n]*\))?`*(?:[*_]{2})?[ \t]*(?=\|)",
    re.ASCII,
)
# `name`, a.b, a_b, aB, a() or --a
_NAME = re.compile(
    r"(`+)[^`\s]+\1|(?!v?[\d.]+$)(?=\w+[_.(]|[a-z]+[A-Z])[\w.]+(?:\([^()\s]*\))?|`*--?[A-Za-z].*"
)
# `a(b, c)` or @a(b)
_CALL = re.compile(r"(?P<mark>`*)@?(?P<name>[\w.]+)\((?:[^`()]|\([^`()]*\))*\)(?P=mark)")
# or a type or anchor, after a name; white space is tried from its beginning only
_ARGUMENTS = re.compile(r"(?<!\s)\s*[*]{0,3}[(\[={].*|(?<!\s)\s+<.*", re.DOTALL)
_KIND = (
    "(?:Class|Exception|Interface|Enum|Record|Annotation Type|Struct|Trait|Union|Module|Namespace)"
)
# "Class Reader<T>" as Javadoc writes it, "Class: Reader" as YARD, "io::Reader Class Template
# Reference" as Doxygen
_OWNER = re.compile(
    rf"(?:{_KIND}:? )+(?P<own>(?=[A-Z]|\w+[.:])[\w.:]+)(?:\W.*)?"
    rf"|(?P<cpp>[\w:]++).* {_KIND}(?: Template)? Reference"
)
# "read", "read() [1/2]" as Doxygen writes it, "`Static` read" as TypeDoc
_MEMBER = re.compile(
    r"(?:`?(?:Abstract|Internal|Optional|Protected|Readonly|Static)`? )*"
    r"(?P<name>~?\w+)(?:\(\))?(?:\s*\[\d+/\d+\])?"
)
# the title of a page about one function; a plain word may be a word
_FUNCTION = re.compile(
    r"(?:Function|Macro|Constant|Static|Type Alias|Variable) "
    r"(?P<name>(?=\w*[a-z][A-Z]|\w*_\w|\w+::)[\w:]+)!?(?:<.*)?"
)
_PYTHON = (
    "(?:abstract|abstractmethod|async|attribute|class|classmethod|exception|final|function|method"
    "|property|static|staticmethod)"
)
# a whole signature as a heading: "pub fn read<T>(&self) -> T" as rustdoc writes it,
# "int io::Reader::read(char *to) const" as Qt, "#read(to = nil) ⇒ Integer" as YARD, "static
# Reader.read(to) → int" as Sphinx
_SIGNATURE = re.compile(
    r"(?:[a-z]+ )*fn (?P<fn>\w+)[<(].*"
    r"|(?P<ruby>[#.][^\s(⇒]+)(?:\(.*\))?\s*⇒.*"
    r"|(?:[^(]*[ *&])?(?<![\w:])(?P<cpp>\w+(?:::~?\w+)+)\(.*\)(?: const| override| noexcept| &+)*"
    rf"|(?:{_PYTHON} )*@?(?P<python>\w+(?:\.\w+)+)\(.*\)(?: (?:→|->) .*)?",
    re.DOTALL,
)
# as code also "property Reader.name: str", "name = None" and "char *read(int to)"
_CODE_SIGNATURE = re.compile(
    rf"`(?:(?:{_PYTHON} )+(?P<python>[\w.]+)(?:[(:\s].*)?"
    r"|(?P<value>[\w.]+)(?::| =) .*"
    r"|(?:[^()=]*[\s*&@])?(?P<call>~?\w[\w.:]*)\(.*)`",
    re.DOTALL,
)
MEMBER_JOINT = re.compile(r"::|[.#]")  # between a class or module and its member
VERSION = re.compile(r"(?<![\w.-])v?\d+\.\d[\w.+~-]*", re.ASCII | re.IGNORECASE)
# the first version of a heading, not the number of a section: `5.2.1 Tools`
RELEASE = re.compile(
    rf"^(?!\d[\d.]*\s+[A-Z{HAN}])[^\n]*?({VERSION.pattern})", re.ASCII | re.IGNORECASE
)
# a heading, such a line, or the title of a folded box
_TITLE = re.compile(
    rf"^(?:#{{1,6}}[ \t]+|(?:<details[^<>\n]*>\s*)?<summary>|(?={BOLD_LINE.pattern}))"
    r"(?P<words>(?:(?!</summary>)[^\n])+)",
    re.MULTILINE,
)
_ASKS = re.compile(rf"^\s*{ASKS}")
_HEADING = re.compile(r"^#{1,6}[ \t]+([^\n]+)", re.MULTILINE)
_SHORT_IS = re.compile(r"(?<=[a-z])'s\b")
_INTERROGATIVE = re.compile(
    r"\b(?:who|whom|whose|when|where|why|which|what|how(?: (?:many|much|long|often))?|not)\b"
    r"|n't\b"
    "|(?<![有是在])(?:没有|不是|不在)|为什么|为何|何时|什么时候|谁|哪|多少|多久|几|怎[么样]|如何|什么"
)


_KINDS = (
    "command|program|tool|utility|package|library|module|project|framework|app|application|function"
)
_HAN_KINDS = "命令|指令|工具|程序|软件|包|库|模块|项目|框架|应用|函数|系统|产品|服务"
_ASKS_THING = re.compile(
    r"\s*(?:what(?:'s| is| are) (?:the (?:purpose|point|role|use|meaning) of )?"
    r"|what do(?:es)? (?=.* (?:do|mean)\b)|(?:please )?(?:explain|describe|define|introduce) "
    r"|tell me about )(?:an? |the )?(?P<thing>.+?)"
    rf"(?: (?:{_KINDS}))?(?: (?:do|mean|for|about|used for|good for))?\s*[?.!]*\s*"
    rf"|(?:请问)?(?:(?:什么|啥)是|请?介绍(?:一下|下)?)(?P<han>.+?)(?:{_HAN_KINDS})?[?？。!！]*"
    rf"|(?:请问)?(?P<named>.+?)\s*(?:这个)?(?:{_HAN_KINDS})?\s*(?:"
    "是(?:什么|啥)(?:意思|东西)?|是(?:干|做)(?:什么|啥|嘛)用?的|是干嘛用?的"
    "|有(?:什么|啥)(?:用|作用|用处|用途|功能)"
    "|的(?:(?:作用|用途|功能|含义)(?:是(?:什么|啥))?|意思是(?:什么|啥))"
    "|(?:是)?用来(?:干|做)(?:什么|啥|嘛)的?|能(?:干|做)(?:什么|啥|嘛)"
    "|(?:干|做)(?:什么|啥|嘛)用?的)[?？。!！]*",
    re.IGNORECASE,
)


def find_thing(question: str) -> str:
    """The thing of which a question asks what it is, does or is for; else "".

    >>> find_thing("What does the cp command do?"), find_thing("git log 命令是做什么的")
    ('cp', 'git log')
    >>> find_thing("What is the default of on_delete?"), find_thing("How does it work?")
    ('default of on_delete', '')
    """
    asked = _ASKS_THING.fullmatch(question)
    thing = next(filter(None, asked.groups()), "").strip() if asked else ""
    return "" if find_flags(thing) else thing  # `make -n` is not make


# such a question about a thing of which a document tells more than what it is: the refund terms
_ASKS_CONTENT = re.compile(
    r"\s*what(?:'s| is| are) the (?!(?:purpose|point|role|use|meaning) of "
    rf"|.* (?:{_KINDS}|for)\W*$)|[{HAN}]+是(?:什么|啥)[?？]?\s*$",
    re.IGNORECASE,
)


def name_thing(question: str) -> set[str]:
    """The words of the thing of which a question asks what it is, does or is for, as they may name
    a document about it; empty for others.

    >>> name_thing("What is the cp command?"), name_thing("What are the refund terms?")
    ({'cp'}, set())
    """
    return set() if _ASKS_CONTENT.match(question) else name_words(find_thing(question))[0]


@lru_cache(maxsize=4096)
def find_described(heading: str) -> str:
    """The name in a heading or label, without its type or arguments (`work_mem` for "`work_mem`
    (`integer`)"), or several names, separated by commas; empty for other headings.
    """
    whole = heading.strip()
    call = _CALL.fullmatch(whole)
    called = f"{call['name']}()" if call else ""
    forms = (called if call and call["mark"] else whole, _ARGUMENTS.sub("", whole), called)
    named = (form for form in forms if all(map(_NAME.fullmatch, form.split(", "))))
    if found := next(named, ""):
        return found.replace("`", "")
    if signed := find_signed(whole):
        return signed.lstrip("#.")
    return titled["name"] if (titled := _FUNCTION.fullmatch(whole)) else ""


@lru_cache(maxsize=4096)
def find_signed(heading: str) -> str:
    """The name in a heading that is a whole signature, in Ruby with `#` or `.` before it; empty for
    other headings.
    """
    whole = heading.strip()
    found = _SIGNATURE.fullmatch(whole.strip("`")) or _CODE_SIGNATURE.fullmatch(whole)
    return next(filter(None, found.groups())) if found else ""


def find_row_name(row: str) -> str:
    """What a row of a table describes, by its first cell; empty where that is not a name."""
    named = _ROW.match(f"|{row.lstrip().removeprefix('|')}|")
    return named["name"] if named else ""


def find_entry_lines(text: str) -> list[str]:
    """The lines of bold words, and the headings that name what is described, in order."""
    return [
        found[0]
        for found in _LINE.finditer(text)
        if found["heading"] is None or find_described(found["heading"])
    ]


def find_signatures(text: str) -> list[tuple[int, str]]:
    """(start, described name) of each line of bold words that is a signature, in order."""
    lines = ((it.start(), it[0].rstrip().strip("*:：")) for it in _BOLD.finditer(text))
    return [(start, find_described(words)) for start, words in lines if find_signed(words)]


def is_titled(question: str, section_path: str, text: str) -> bool:
    """True if a passage or its section has a question as a title."""
    titles = [*split_path(section_path)[-1:], *(it["words"] for it in _TITLE.finditer(text))]
    return any(is_asked(question, it) for it in titles)


def is_asked(question: str, title: str) -> bool:
    """True for a title in the words of a question, or that asks for the same in others: with the
    same interrogative and the same meaningful terms in the same order. Titles that are no questions
    only answer how.

    >>> is_asked("how can I copy a file", "How do I copy files?")
    True
    >>> is_asked("Where is it installed?", "How is it installed?")
    False
    """
    own = _ASKS.sub("", title).strip("*# \t")
    if own.rstrip("?？").casefold() == question.strip().rstrip("?？").casefold():
        return True
    if has_han(own) != has_han(question):  # needs no Chinese words, whose dictionary takes 29 MiB
        return False
    asked, read = _read_question(question), _read_question(own)
    if not own.endswith(("?", "？")) and not _ASKS.match(title):
        # "Opening jars" tells how, not who opens them, where or when; "Opening" has too few words
        return asked[0] in ("how", "如何") and len(asked) > 2 and read[1:] == asked[1:]
    return len(asked) > 1 and read == asked


@lru_cache(maxsize=4096)
def _read_question(text: str) -> tuple[str, ...]:
    """The interrogatives and negations of a question, then its meaningful terms in order."""
    text = _SHORT_IS.sub("", simplify(text.lower().replace("’", "'")))
    asks = " ".join("如何" if it[0] == "怎" else it for it in _INTERROGATIVE.findall(text))
    rest = terms(_INTERROGATIVE.sub(" ", text))
    return asks, *(term for term in rest if not is_weak_term(term))


def find_headings(text: str) -> list[str]:
    """The words of the headings in a text."""
    return _HEADING.findall(text)


def find_members(path: Iterable[str], text: str = "") -> list[str]:
    """The members that headings below that of their class name, with the class: `io::Reader::read`.
    `path` are the headings above the text.
    """
    owner, joint, members, is_signed = "", "", [], False
    for heading in (*path, *find_headings(text)):
        name = heading.strip().replace("\\", "")
        if found := _OWNER.fullmatch(name):
            owner = found["own"] or found["cpp"]
            joint = "::" if found["cpp"] or "::" in owner else "."
        elif signed := find_signed(name):
            own = "" if "::" in signed else owner if signed[0] in "#." else f"{owner}{joint}"
            members.append(f"{own}{signed}")
            is_signed = True  # headings without a signature are parts of its text
        elif owner and not is_signed and (member := _MEMBER.fullmatch(name)):
            members.append(f"{owner}{joint}{member['name']}")
    return members


def find_entry_names(section_path: str, text: str) -> list[str]:
    """What a chunk describes, as questions may name it: its entry lines, and its members with the
    name of their class, also without what the class is in (`Reader::read`).
    """
    names = find_entry_lines(text)
    for member in dict.fromkeys(find_members(split_path(section_path), text)):
        names += [member, *(member[it.end() :] for it in [*MEMBER_JOINT.finditer(member)][:-1])]
    return names


@lru_cache(maxsize=512)  # the passages of a question are asked for several times
def join_headings(title: str, section_path: str, text: str) -> str:
    """The title and headings above a passage and the names of what it describes, one a line."""
    return "\n".join([title, section_path, *find_entry_names(section_path, text)])
