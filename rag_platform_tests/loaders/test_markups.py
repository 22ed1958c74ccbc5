"""AsciiDoc, Org, POD, RFCs, subtitles and texts with numbered headings, read as Markdown."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rag_platform.loaders.markups import find_markup, list_numbered, markup_blocks, markup_edits
from rag_platform.loaders.text import TextLoader
from rag_platform.normalisation.edits import apply_edits

ASCIIDOC = """\
git-gc(1)
=========

OPTIONS[[OPTIONS]]
------------------
// not shown
-q::
--quiet::
\tSay nothing. See
\tlinkgit:git-repack[1].
+
It is `false` by default.

gc.auto::
gc.limit (old)::
\tA number.

[source]
----
git gc -q
----
"""
ORG = """\
#+TITLE: Notes
* TODO Clock table
:PROPERTIES:
:ID: 7
:END:
#+cindex: clock
Press {{{kbd(C-c)}}}, see [[*Agenda]] or [[https://x.org][the site]].
- ~org-clock-report~ ::
  #+kindex: C-c
  Insert =it=.
#+begin_src sh
ls
#+end_src
"""
POD = """\
=head1 NAME
X<function>

perlfunc - Perl functions

=over 4

=item chomp VARIABLE
X<chomp>

=for Pod::Functions remove it

This L<C<chop>|/chop VARIABLE> is C<< $a->b >>.

    chomp $x;

=item *

A B<point> with C<E<lt>>.

=back
"""
SUBTITLES = """\
WEBVTT - Stand-up
Kind: captions

NOTE made by hand
in two lines

1
00:01.000 --> 00:04.000 align:left
<v Ann Lee>The <b>pump</b> runs</v>

the second part
01:00:04.500 --> 01:00:08.000
for 5 --> 6 days<00:06.000> now.

3
00:00:09,000 --> 00:00:10,000
{\\an8}Stop it.

4
00:00:10 --> 00:00:11

5
00:00:11 --> 00:00:12

6
00:00:12 --> 00:00:13
All of it.

7
"""
RFC = """\
Network Working Group                                      J. Klensin
Request for Comments: 5321                               October 2008


                     Simple Mail Transfer Protocol

Table of Contents

   1.  Introduction . . . . . . . . . . . . . . . . . . . . . . . . 5

4.2.1.  Reply Codes

   The text may be receiver dependent and



Klensin                     Standards Track                     [Page 4]
\f
RFC 5321                          SMTP                      October 2008


   varies.

   4.2.2.  MORE CODES

   1.  A list.

A.1.  Example

   None.
"""


@pytest.mark.parametrize(
    ("text", "suffix", "markdown"),
    [
        (
            ASCIIDOC,
            ".txt",
            """\
# git-gc(1)

## OPTIONS

**`-q, --quiet`**

Say nothing. See
git-repack(1).

It is `false` by default.

**`gc.auto`, gc.limit (old)**

A number.

```
git gc -q
```
""",
        ),
        (
            ORG,
            ".org",
            """\
# Notes
## TODO Clock table

Press `C-c`, see Agenda or the site.
**`org-clock-report`**

  Insert `it`.
```
ls
```
""",
        ),
        (
            POD,
            ".pod",
            """\
# perlfunc - Perl functions

**chomp VARIABLE**

This `chop` is `$a->b`.

```
    chomp $x;
```

- A **point** with `<`.
""",
        ),
        (
            RFC,
            "",
            """\
Network Working Group                                      J. Klensin
Request for Comments: 5321                               October 2008

# RFC 5321: Simple Mail Transfer Protocol

## Table of Contents

   1.  Introduction . . . . . . . . . . . . . . . . . . . . . . . . 5

#### 4.2.1. Reply Codes

   The text may be receiver dependent and
   varies.

#### 4.2.2. MORE CODES

   1.  A list.

### A.1. Example

   None.
""",
        ),
        (
            SUBTITLES,
            ".vtt",
            "Ann Lee: The pump runs\nfor 5 --> 6 days now.\nStop it.\nAll of it.\n\n7",
        ),
    ],
    ids=["asciidoc", "org", "pod", "rfc", "vtt"],
)
def test_markup_becomes_markdown(text: str, suffix: str, markdown: str) -> None:
    profile = find_markup(text, suffix)
    for raw in (text, text.replace("\n", "\r\n")):
        written = apply_edits(raw, markup_edits(raw, profile)).text
        lines = [line.rstrip() for line in written.splitlines()]
        packed = [line for at, line in enumerate(lines) if line or (at and lines[at - 1])]
        assert "\n".join(packed).strip("\n") == markdown.strip("\n")


def test_headings_name_the_document_and_its_blocks_hold_every_word(tmp_path: Path) -> None:
    path = tmp_path / "rfc5321.txt"
    raw = RFC.replace("\n", "\r\n").encode()
    path.write_bytes(raw)
    facts = TextLoader().load(path, path.name)
    assert facts.summary.title == "RFC 5321: Simple Mail Transfer Protocol"
    held = b" ".join(raw[b.byte_start : b.byte_end] for b in facts.blocks)
    assert held.replace(b"\f", b"").split() == raw.replace(b"\f", b"").split()
    headings = [(b.level, b.line_start, b.title) for b in facts.blocks if b.title]
    assert headings[2:] == [
        (4, 11, "4.2.1. Reply Codes"),
        (4, 24, "4.2.2. MORE CODES"),
        (3, 28, "A.1. Example"),
    ]


@pytest.mark.parametrize(
    ("text", "profile", "markdown"),
    [
        ("=item X<chomp>\n\nRemoves.\n", "pod", "\n\nRemoves.\n"),  # a term without words
        ("::::\n\nx\n", "asciidoc", "::::\n\nx\n"),
        ("[1] Knuth, see [2]\n", "asciidoc", "[1] Knuth, see [2]\n"),
        ("[subs=a[b]]\nx\n", "asciidoc", "\nx\n"),
    ],
)
def test_terms_and_attributes_that_only_look_so(text: str, profile: str, markdown: str) -> None:
    assert apply_edits(text, markup_edits(text, profile)).text == markdown


@pytest.mark.parametrize(
    ("start", "part", "profile"),
    [
        ("=head1 NAME\nX<", " ", "pod"),
        ("= a", " ", "asciidoc"),
        ("= a", "[[", "asciidoc"),
        ("<<a,", " ", "asciidoc"),
        ("- a", " ", "org"),
        ("00:01.0", " ", "subtitles"),
        ("a", "\n", "subtitles"),
        ("1 A\n", " ", "numbered"),
        ("第一条", "一", "numbered"),
    ],
)
def test_long_lines_take_time_in_proportion(start: str, part: str, profile: str) -> None:
    started = time.process_time()
    markup_blocks(f"{start}{part * 40_000}x", profile)
    assert time.process_time() - started < 5


def test_captions_without_punctuation_have_paragraphs() -> None:
    cues = [f"{n}\n00:00:{n:02} --> 00:00:{n + 1:02}\nword {n}" for n in range(1, 15)]
    cues[9] += ".</i>"
    text = "\n\n".join(cues)
    paragraphs = apply_edits(text, markup_edits(text, "subtitles")).text.split("\n\n")
    assert [it.count("word") for it in paragraphs] == [6, 8]


def test_subtitles_are_called_by_their_file(tmp_path: Path) -> None:
    path = tmp_path / "stand-up.srt"
    path.write_text("1\n00:00:01,000 --> 00:00:02,000\nHello.\n")
    assert TextLoader().load(path, path.name).summary.title == "stand-up"


def test_other_texts_are_not_taken_for_these() -> None:
    assert not find_markup(".. note::\n   x\n\nTerm::\n   y\n", ".txt")
    assert not find_markup("Notes\n=====\n\nSee RFC 5321.\n\n    code::\n", ".txt")
    assert not find_markup("* one\n* two\n", ".txt")
    assert not find_markup("[source]\nurl = x\n", ".txt")
    assert find_markup("[source,sh]\n----\nls\n----\n", ".txt") == "asciidoc"


@pytest.mark.parametrize(
    ("line", "profile"),
    [
        ("----\n", "asciidoc"),
        ("x::\n\ty\n", "asciidoc"),
        ("  a\n\n", "asciidoc"),
        ("#+begin_src\n", "org"),
        (":PROPERTIES:\n", "org"),
        ("=begin\n\n", "pod"),
        ("C<<C<", "pod"),
        ("\n\n\n", "rfc"),
        ("= " * 9, "asciidoc"),
        ("....a\n", "asciidoc"),
        ("link:a[" * 5, "asciidoc"),
        ("=begin x\n", "pod"),
        ("C<< a " * 5, "pod"),
        (" " * 10, "rfc"),
        ("[[" * 9, "org"),
        ("[Page " * 3, "rfc"),
        ("NOTE a\n\n1\n00:01.0 --> 00:02.0\n", "subtitles"),
        ("<v a<b{\\00:" * 5, "subtitles"),
        ("1\n0:01 --> 0:02\n \n", "subtitles"),
        ("0:01 --> 0:02\n\n\n", "subtitles"),
        ("1 A\n\n", "numbered"),
        ("第一条\n\u3000", "numbered"),
    ],
)
def test_long_texts_take_time_in_proportion(line: str, profile: str) -> None:
    started = time.process_time()
    markup_blocks(line * 4000, profile)
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        (
            "Manual\n\n1 Overview\n\nWhat it is.\n\n2 Set-up\n\n2.1 Needs\n\nLinux 5.4.\n\n"
            "2.2 Steps\n\n1. Stop it\n2. Start it\n\n3 Backup\n\nEvery night.\n",
            {"1 Overview": 2, "2 Set-up": 2, "2.1 Needs": 3, "2.2 Steps": 3, "3 Backup": 2},
        ),
        (
            "章程\n目录\n第一章 总则\n第二章 会员\n\n第一章 总则\n第一条　名称\n本会叫甲。\n"
            "第二章 会员\r\n第二条　入会\r\n由会长批准。\n第3条 会费\n每年十元。\n",
            {
                "第一章 总则": 2,
                "第一条 名称": 3,
                "第二章 会员": 2,
                "第二条 入会": 3,
                "第3条 会费": 3,
            },
        ),
        ("1. Do it\n\nNow.\n\n2. Rest\n\nA bit.\n\n4. Go\n\nAway.\n", {}),  # one is missing
        ("1. Do\n\nNow.\n\n2. Go\n\nOn.\n\n1. Do\n\nX.\n\n2. Go\n\nY.\n", {}),  # two lists
        ("1. Milk\n\n2. Bread\n\n3. Salt\n\nBuy all.\n", {}),
        (
            "第一条 甲方交付房屋，乙方验收。\n第二条 乙方付款。\n第三条 本合同有效。\n",
            {},
        ),  # sentences
    ],
)
def test_numbered_lines_are_headings_where_all_numbers_follow(
    text: str, levels: dict[str, int]
) -> None:
    assert {" ".join(it[0].split()): level for it, level in list_numbered(text)} == levels
    markdown = apply_edits(text, markup_edits(text, "numbered")).text
    assert all(f"{'#' * level} {name}" in markdown for name, level in levels.items())


def test_the_title_above_numbered_headings_is_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(
        "租赁合同\n第一条 房屋\n一间。\n第二条 租期\n两年。\n第三条 租金\n五千。\n", "utf-8"
    )
    facts = TextLoader().load(path, path.name)
    assert facts.summary.title == "租赁合同"
    assert [it.title for it in facts.blocks if it.title] == [
        "第一条 房屋",
        "第二条 租期",
        "第三条 租金",
    ]
