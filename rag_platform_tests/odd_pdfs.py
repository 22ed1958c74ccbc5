"""PDFs of odd kinds, written from a seed: what each page says, what nobody may see, and what
repeats.

Ten kinds, one after the other; file N is the same for everybody. Words are made up, and each page
has its own, so that a word that arrives on the wrong page is noticed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pymupdf

WIDTH, HEIGHT = 595, 842
_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
# Without words whose lam joins the next letter: MuPDF's writer prints that sign without saying
# which letters it stands for.
_RTL = {
    "ar": (
        (
            "كتاب مدرسة مدينة تقرير ميزانية مشروع شركة جدول سنة شهر يوم ماء نهر جبل بحر طريق قطار"
            " سيارة مهندس طبيب عقد سعر رقم حساب نسخة بيانات نظام برنامج ترجمة قانون محكمة وزارة شعب"
            " حكومة اقتصاد تجارة صناعة زراعة طاقة كهرباء هواء شمس قمر نجم سماء أرض"
        ).split()
    ),
    "he": (
        (
            "שלום ספר עולם חברה דוח תקציב שנה חודש מחיר חשבון מספר טבלה עיר רחוב בית מים נהר הר ים"
            " דרך רכבת מכונית מהנדס רופא חוזה עותק נתונים מערכת תוכנה שפה תרגום חוק משפט משרד מדינה"
            " עם ממשלה כלכלה מסחר תעשייה חקלאות אנרגיה חשמל אוויר שמש ירח כוכב שמיים אדמה תלמיד"
        ).split()
    ),
}


@dataclass
class OddPdf:
    """One file and what must become of it. `hidden` words may stand in no chunk; `repeated` ones
    may.
    """

    path: Path
    kind: str
    # page: words that must be found, on that page
    words: dict[int, list[str]] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)


Writer = Callable[[pymupdf.Document, random.Random, OddPdf], None]


def odd_pdf(folder: Path, number: int) -> OddPdf:
    """Write file `number` into the folder; its kind is that of KINDS at the number modulo ten."""
    chance = random.Random(f"odd {number}")
    kind = list(KINDS)[number % len(KINDS)]
    made = OddPdf(folder / f"{number:03d}-{kind}.pdf", kind)
    with pymupdf.open() as document:
        KINDS[kind](document, chance, made)
        document.save(made.path)
    return made


def odd_pdfs(folder: Path, count: int = 200) -> Iterator[OddPdf]:
    """The first `count` files."""
    return (odd_pdf(folder, number) for number in range(count))


def _words(chance: random.Random, count: int) -> list[str]:
    return ["".join(chance.choices(_SYLLABLES, k=4)) for _ in range(count)]


def _page(document: pymupdf.Document, made: OddPdf) -> tuple[pymupdf.Page, list[str]]:
    page = document.new_page(width=WIDTH, height=HEIGHT)
    return page, made.words.setdefault(len(document), [])


def _text(page: pymupdf.Page, rect: tuple[float, ...], words: list[str], **options: object) -> None:
    assert page.insert_textbox(rect, " ".join(words), **options) >= 0, "the text does not fit"


def _slides(document: pymupdf.Document, chance: random.Random, made: OddPdf) -> None:
    company = _words(chance, 2)
    footer = chance.random() < 0.5
    for number in range(1, chance.randint(1, 40) + 1):
        page, said = _page(document, made)
        unit, sum_, aim = f"U{number:02d}", str(number * 1000), _words(chance, 1)[0]
        page.insert_text((50, 200), f"Slide {number}: the budget for {aim} {unit}", fontsize=24)
        page.insert_text((50, 240), f"is {sum_} EUR", fontsize=24)
        said += ["budget", aim, unit, sum_, "EUR"]
        if footer:
            page.insert_text((50, 810), f"{' '.join(company)}   {number}", fontsize=9)
    made.repeated = company


def _covers(document: pymupdf.Document, chance: random.Random, made: OddPdf) -> None:
    page, said = _page(document, made)
    said += (title := _words(chance, 3))
    _text(page, (60, 250, 540, 360), title, fontsize=34, align=1)
    for height, size in ((500, 14), (760, 9)):
        said += (line := _words(chance, 4))
        page.insert_text((180, height), " ".join(line), fontsize=size)
    for _ in range(chance.randint(0, 6)):
        page, said = _page(document, made)
        said += (body := _words(chance, 80))
        _text(page, (60, 80, 540, 760), body)


def _invoices(document: pymupdf.Document, chance: random.Random, made: OddPdf) -> None:
    sender = _words(chance, 5)
    for number in range(1, chance.randint(1, 8) + 1):
        page, said = _page(document, made)
        page.insert_text((60, 50), " ".join(sender), fontsize=9)
        key = f"2024{chance.randint(1000, 9999)}"
        page.insert_text((60, 120), f"Invoice {key}", fontsize=20)
        said.append(key)
        for row in range(chance.randint(1, 25)):
            name, price = _words(chance, 2), f"{chance.randint(100, 99999)}"
            for x, text in ((60, str(row + 1)), (100, " ".join(name)), (420, price)):
                page.insert_text((x, 180 + 20 * row), text)
            said += [*name, price]
        if chance.random() < 0.5:
            for row in range(3):
                page.draw_line((60, 164 + 20 * row), (480, 164 + 20 * row))
        account = "".join(chance.choices("0123456789", k=12))
        page.insert_text(
            (60, 800), f"pay to {account} until {_words(chance, 1)[0]} {number}", fontsize=8
        )
        said.append(account)
    made.repeated = sender


def _forms(document: pymupdf.Document, chance: random.Random, made: OddPdf) -> None:
    for _ in range(chance.randint(1, 3)):
        page, said = _page(document, made)
        for row in range(chance.randint(2, 8)):
            label, value = _words(chance, 1)[0], _words(chance, 2)
            height = 100 + 60 * row
            page.insert_text((60, height), f"{label}:")
            field_ = pymupdf.Widget()
            field_.field_name, field_.field_type = (
                f"f{page.number}-{row}",
                pymupdf.PDF_WIDGET_TYPE_TEXT,
            )
            field_.rect, field_.field_value = (
                pymupdf.Rect(200, height - 14, 480, height + 6),
                " ".join(value),
            )
            page.add_widget(field_)
            said += [label, *value]


def _one_liners(document: pymupdf.Document, chance: random.Random, made: OddPdf) -> None:
    height = chance.choice((30, 72, 200, 420, 770, 825))
    for _ in range(chance.choice((1, 1, 1, 2, 5, 12))):
        page, said = _page(document, made)
        said += (line := _words(chance, chance.randint(1, 6)))
        page.insert_text((72, height), " ".join(line), fontsize=chance.choice((8, 11, 20)))


def _columns(document: pymupdf.Document, chance: random.Random, made: OddPdf) -> None:
    journal, pages = _words(chance, 3), chance.randint(1, 12)
    for number in range(1, pages + 1):
        page, said = _page(document, made)
        page.insert_text((60, 40), " ".join(journal), fontsize=8)
        page.insert_text((290, 815), f"Page {number} of {pages}", fontsize=8)
        for left in (60, 310):
            said += (body := _words(chance, 110))
            _text(page, (left, 80, left + 225, 730), body, fontsize=10)
        said += (note := _words(chance, 5))
        page.insert_text((60, 780), f"{number}) {' '.join(note)}", fontsize=7)
    made.repeated = journal


def _rotated(document: pymupdf.Document, chance: random.Random, made: OddPdf) -> None:
    for _ in range(chance.randint(1, 6)):
        page, said = _page(document, made)
        said += (body := _words(chance, 60))
        turn = chance.choice((90, 180, 270))
        if chance.random() < 0.7:
            _text(page, (80, 80, 500, 700), body, fontsize=11)
            page.set_rotation(turn)
        else:
            _text(page, (80, 80, 500, 700), body, fontsize=11, rotate=turn)


def _right_to_left(document: pymupdf.Document, chance: random.Random, made: OddPdf) -> None:
    words = _RTL[language := chance.choice(list(_RTL))]
    for _ in range(chance.randint(1, 3)):
        page, said = _page(document, made)
        body = chance.sample(words, 30)
        number = str(chance.randint(1000, 9999))
        page.insert_htmlbox(
            (80, 80, 500, 700),
            f'<p dir="rtl" lang="{language}">{" ".join([*body[:15], number, *body[15:]])}</p>',
        )
        said += [*body, number]


def _hidden(document: pymupdf.Document, chance: random.Random, made: OddPdf) -> None:
    for _ in range(chance.randint(1, 4)):
        page, said = _page(document, made)
        said += (body := _words(chance, 40))
        _text(page, (80, 300, 500, 700), body)
        for row in range(chance.randint(1, 3)):
            made.hidden += (secret := _words(chance, 4))
            _hide(page, 60 + 60 * row, " ".join(secret), chance)


def _hide(page: pymupdf.Page, height: float, text: str, chance: random.Random) -> None:
    place, way = (80, height), chance.randrange(7)
    if way == 0:
        page.insert_text(place, text, color=(1, 1, 1), fontsize=chance.choice((9, 28)))
    elif way == 1:
        page.draw_rect((60, height - 20, 540, height + 10), color=None, fill=(0.2, 0.4, 0.1))
        page.insert_text(place, text, color=(0.2, 0.4, 0.1))
    elif way == 2:
        page.insert_text(place, text)
        page.draw_rect(
            (60, height - 20, 540, height + 10),
            color=None,
            fill=chance.choice(((1, 1, 1), (0, 0, 0))),
        )
    elif way == 3:
        page.insert_text(place, text, render_mode=3)
    elif way == 4:
        page.insert_text(place, text, fontsize=chance.choice((0.1, 0.5)))
    elif way == 5:
        page.insert_text((WIDTH + 80, height), text)
    else:
        page.insert_text(place, text, fill_opacity=0, stroke_opacity=0)


def _footers_only(document: pymupdf.Document, chance: random.Random, made: OddPdf) -> None:
    line, height, pages = _words(chance, 4), chance.choice((30, 800, 825)), chance.randint(1, 40)
    for number in range(1, pages + 1):
        page, said = _page(document, made)
        page.insert_text((72, height), f"{' '.join(line)} {number} of {pages}", fontsize=9)
        said += line


KINDS: dict[str, Writer] = {
    "slides": _slides,
    "covers": _covers,
    "invoices": _invoices,
    "forms": _forms,
    "one-liners": _one_liners,
    "columns": _columns,
    "rotated": _rotated,
    "right-to-left": _right_to_left,
    "hidden": _hidden,
    "footers-only": _footers_only,
}


def problems(made: OddPdf, said: dict[int, str], title: str) -> list[str]:
    """What is wrong with a file of which `said` tells each page's text in chunks; empty for a sound
    one.
    """
    found = []
    if lost_pages := sorted(made.words.keys() - said.keys()):
        found.append(f"pages {lost_pages} have no chunk")
    for page, words in made.words.items():
        here = set(said.get(page, "").replace("|", " ").replace(":", " ").split())
        if missing := [word for word in words if word not in here]:
            found.append(f"page {page} lacks {len(missing)} of {len(words)} words: {missing[:5]}")
    everything = {word for text in (*said.values(), title) for word in text.split()}
    if seen := [word for word in made.hidden if word in everything]:
        found.append(f"hidden words are found: {seen[:5]}")
    return found
