"""Mails (.eml) and saved pages (.mhtml): MIME messages, read with the standard library; HTML in
them is read like a page.

Locators are `header=from`, `part=1.2;lines=3-9` and `part=1.2;xpath=/html/body/p[3]`, with parts
numbered as in IMAP; for a header of a forwarded mail `part=2;header=from`.
"""

from __future__ import annotations

import base64
import email
import email.policy
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from pathlib import Path, PurePosixPath
from typing import ClassVar, cast
from urllib.parse import urljoin

from rag_platform.errors import DocumentError
from rag_platform.ir import Block, Facts, HiddenText, Json
from rag_platform.loaders.decoding import decode, looks_like_text
from rag_platform.loaders.languages import suffix_of
from rag_platform.loaders.markup.html import (
    decode_page,
    find_mismatched,
    note_left_out,
    page_title,
    parse_page,
)
from rag_platform.loaders.markup.html_blocks import Page
from rag_platform.loaders.markup.html_main import main_pieces
from rag_platform.loaders.parts import Engine, Part, join_parts, joined_facts
from rag_platform.loaders.text import BLANK_LINES, paragraph_spans
from rag_platform.loaders.word_comparison import Line
from rag_platform.text.scripts import letters
from rag_platform.traits import Traits

HEADERS = ("from", "to", "cc", "date")
MAX_PARTS = 2_000
MAX_DEPTH = 8  # of nested forwarded mails
TEXT = "text/plain"
REPORT = "message/delivery-status"
CALENDAR = "text/calendar"
READ = (TEXT, "text/html", "text/rfc822-headers", REPORT, CALENDAR)
ADDRESS = re.compile(r"(?:https?|mailto):\S+")
ENCODED_WORDS = re.compile(r"(?:=\?[^?\s]+\?[BbQq]\?[^?]*\?=\s*)*=\?[^?\s]+\?[BbQq]\?[^?]*\?=")
_PROPERTY = re.compile(r"^([\w-]+)((?:;(?:\"[^\"]*\"|[^\":\n])*)?):(.*)$", re.MULTILINE)
_EVENT_FIELDS = {"DTSTART": "Start", "DTEND": "End", "RRULE": "Repeats", "LOCATION": "Location"}
_SIGNATURE = "-- "
_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)\d\d(Z?))?")


@dataclass(frozen=True)
class MailLoader:
    """Reads one mail: subject, addresses, date and text; attachments only give warnings."""

    NAME: ClassVar[str] = "eml"
    VERSION: ClassVar[str] = "14"
    traits: ClassVar[Traits] = Traits(isolated=True)

    def claims(self, filename: str, head: bytes) -> bool:
        """True for text called .eml."""
        return suffix_of(filename) == ".eml" and looks_like_text(head)

    def load(self, path: Path, filename: str) -> Facts:
        """Raises `broken_file`, `encrypted`, `too_large`, `empty_file`."""
        message = _read_message(path)
        reading = _Reading()
        empty = "the mail holds no text; save its attachments as files and ingest those"
        joined = join_parts(reading.read_mail(message, "", 0), empty)
        if not reading.bodies:
            raise DocumentError(empty, code="empty_file")
        metadata: Json = {
            name: value
            for name, header in (("author", "from"), ("date", "date"))
            if (value := header_text(message, header))
        }
        title = header_text(message, "subject") or PurePosixPath(filename).stem
        engine = Engine("email", "1", "mail")
        return joined_facts(
            self, engine, joined, title, metadata, reading.warnings, hidden=reading.hidden
        )

    def verify_blocks(self, path: Path, text: str, blocks: Sequence[Block]) -> dict[int, str]:
        """Ordinal to reason for each block that differs from its header, lines or element."""
        return _find_problems(_read_message(path), text, blocks)


@dataclass(frozen=True)
class MhtmlLoader:
    """Reads a page that a browser saved in one file with its images."""

    NAME: ClassVar[str] = "mhtml"
    VERSION: ClassVar[str] = "17"
    traits: ClassVar[Traits] = Traits(isolated=True)

    def claims(self, filename: str, head: bytes) -> bool:
        """True for text called .mhtml or .mht."""
        return suffix_of(filename) in (".mhtml", ".mht") and looks_like_text(head)

    def load(self, path: Path, filename: str) -> Facts:
        """Raises `broken_file`, `too_large`, `empty_file`."""
        message = _read_message(path)
        parts = number_parts(message)
        pages = ((n, leaf) for n, leaf in parts if leaf.get_content_type() == "text/html")
        number, part = next(pages, ("", None))
        if part is None:
            raise DocumentError(
                "the file holds no page; save it again from the browser", code="broken_file"
            )
        page = _read_page(part)
        title = page_title(page.root) or header_text(message, "subject")
        images, base = _Images(message), str(part.get("Content-Location", ""))
        kept = main_pieces(page, title)
        pieces = [page.pieces[index] for index in kept]
        joined = join_parts(
            page.parts(pieces, f"part={number}", lambda target: images.find(target, base)),
            "the page holds no text; save it again after it has loaded",
        )
        address = str(
            message.get("Snapshot-Content-Location") or part.get("Content-Location") or ""
        ).strip()
        metadata: Json = {"url": address[:2000]} if address.startswith("http") else {}
        hidden = [*page.hidden, *note_left_out(page, kept, metadata)]
        title = joined.choose_title(title, filename)
        engine = Engine("email", "1", "page")
        return joined_facts(self, engine, joined, title, metadata, page.notes, hidden=hidden)

    def verify_blocks(self, path: Path, text: str, blocks: Sequence[Block]) -> dict[int, str]:
        """Ordinal to reason for each block that differs from the element at its locator."""
        return _find_problems(_read_message(path), text, blocks)


def _read_message(path: Path) -> Message:
    """The parsed file. Raises `broken_file` without headers, `too_large` for too many parts."""
    raw = path.read_bytes()
    message: Message = email.message_from_bytes(raw, policy=email.policy.compat32)
    if not any(
        message.get(name)
        for name in ("from", "to", "subject", "date", "mime-version", "content-type")
    ):
        raise DocumentError(
            "the file has no header of a mail; export it again from the mail program",
            code="broken_file",
        )
    for part in message.walk():
        if part.get_content_type() == "message/rfc822":
            _decode_inner(part)
    if sum(1 for _ in message.walk()) > MAX_PARTS:
        raise DocumentError(
            f"more than {MAX_PARTS} parts; save the parts that matter as files", code="too_large"
        )
    return message


def _decode_inner(part: Message) -> None:
    """Decode and parse a forwarded mail in base64, which Python's parser leaves encoded because
    RFC 2046 (5.2.1) forbids it.
    """
    if str(part.get("Content-Transfer-Encoding", "")).strip().lower() == "base64":
        coded = "".join(str(inner.get_payload()) for inner in _subparts(part))
        with suppress(ValueError):
            inner = email.message_from_bytes(base64.b64decode(coded), policy=email.policy.compat32)
            part.set_payload([inner])


def _subparts(part: Message) -> list[Message]:
    """The parts of a multipart message; of a message/rfc822 only the mail in it."""
    return cast(list[Message], part.get_payload())


def number_parts(message: Message, number: str = "") -> Iterator[tuple[str, Message]]:
    """(number, part) of each part, depth first; a message without parts is part 1."""
    if not message.is_multipart():
        yield number or "1", message
        return
    if number:
        yield number, message
    for index, part in enumerate(_subparts(message), 1):
        forwarded = message.get_content_type() == "message/rfc822"
        yield from number_parts(part, _number_below(number, 0 if forwarded else index))


def _number_below(number: str, index: int) -> str:
    """The number of a part within another; the mail in a message/rfc822 has the index 0."""
    return f"{number}.{index}" if number else str(index)


def header_text(message: Message, name: str) -> str:
    """A header, decoded, on one line; "" if it is missing."""
    raw = str(next((value for key, value in message.raw_items() if key.lower() == name), ""))
    # some headers contain raw bytes
    sent = raw.encode("utf-8", "surrogateescape")
    raw = sent.decode("utf-8", "replace")
    if not sent.isascii() or b"\x1b" in sent:
        with suppress(DocumentError):
            raw = decode(sent, *_list_charsets(message)).text
    try:
        decoded = ENCODED_WORDS.sub(lambda found: str(make_header(decode_header(found[0]))), raw)
    except (ValueError, LookupError, MessageError):
        decoded = raw
    return " ".join(decoded.encode("utf-8", "replace").decode().split())[:2000]


def _list_charsets(message: Message) -> Iterator[str]:
    """The charset of each text part: the declared one, else the detected one."""
    for part in message.walk():
        raw = part.get_payload(decode=True) if part.get_content_maintype() == "text" else None
        if isinstance(raw, bytes):
            with suppress(DocumentError):
                yield _declared_charset(part) or decode(raw).encoding


def _declared_charset(part: Message) -> str:
    """The charset that a part declares; "" for ASCII, which mail programs declare for any text."""
    name = str(part.get_content_charset("") or "")
    return "" if name in ("us-ascii", "ascii") else name


def body_text(part: Message) -> str:
    """The text of a part, lines ending with LF; "" without one."""
    if part.get_content_type() == REPORT and part.is_multipart():
        groups = _subparts(part)
        fields = ("\n".join(f"{name}: {value}" for name, value in it.items()) for it in groups)
        return "\n\n".join(fields)
    raw = part.get_payload(decode=True)
    if not isinstance(raw, bytes) or not raw.strip():
        return ""
    try:
        text = re.sub(r"\r\n?", "\n", decode(raw, _declared_charset(part)).text)
    except DocumentError:
        return ""
    return _read_events(text) if part.get_content_type() == CALENDAR else text


def unflow(part: Message, text: str) -> str:
    """The text of a part with its soft line breaks undone, if it declares
    `format=flowed` (RFC 3676).
    """
    if str(part.get_param("format", "")).lower() != "flowed":
        return text
    deletes_spaces = str(part.get_param("delsp", "")).lower() == "yes"
    lines: list[tuple[int, str]] = []  # depth of the quote, words
    flows = False
    for line in text.split("\n"):
        words = line.lstrip(">")
        depth = len(line) - len(words)
        words = words.removeprefix(" ")
        is_signature = words == _SIGNATURE
        before = lines.pop()[1] if flows and not is_signature and lines[-1][0] == depth else ""
        flows = words.endswith(" ") and not is_signature
        lines.append((depth, before + (words[:-1] if flows and deletes_spaces else words)))
    return "\n".join(
        f"{'>' * depth} {words}".strip(" ") if words != _SIGNATURE else f"{'>' * depth}{words}"
        for depth, words in lines
    )


def _read_events(calendar: str) -> str:
    """The times and places of a calendar's events, then their descriptions (RFC 5545)."""
    places, descriptions = [], []
    for event in re.sub(r"\n[ \t]", "", calendar).split("BEGIN:VEVENT\n")[1:]:
        own = re.split(r"^(?:BEGIN|END):", event, maxsplit=1, flags=re.MULTILINE)[0]
        found = {name: (options, value) for name, options, value in _PROPERTY.findall(own)}
        for name, label in _EVENT_FIELDS.items():
            if value := _read_value(*found.get(name, ("", ""))):
                places.append(f"{label}: {' '.join(value.split())}")
        descriptions.append(_read_value(*found.get("DESCRIPTION", ("", ""))))
    return "\n\n".join(filter(None, ["\n".join(places), *descriptions]))


def _read_value(options: str, value: str) -> str:
    """The value of a property as text, times with their zone."""
    if match := _TIME.fullmatch(value):
        year, month, day, hour, minute, utc = match.groups()
        zone = re.search(r'TZID="?([^";]+)', options, re.IGNORECASE)
        time = f" {hour}:{minute}" if hour else ""
        return f"{year}-{month}-{day}{time}{' UTC' if utc else f' {zone[1]}' if zone else ''}"
    return re.sub(r"\\(.)", lambda found: found[1].replace("n", "\n").replace("N", "\n"), value)


def _read_page(part: Message) -> Page:
    raw = part.get_payload(decode=True)
    text = decode_page(raw if isinstance(raw, bytes) else b"", _declared_charset(part)).text
    return Page(parse_page(text))


class _Images:
    """Finds the images of a message by their content id or address."""

    def __init__(self, message: Message) -> None:
        self._found: dict[str, Message] = {}
        for part in message.walk():
            if part.get_content_maintype() == "image":
                for key in (
                    f"cid:{str(part.get('Content-ID', '')).strip(' <>')}",
                    str(part.get("Content-Location", "")).strip(),
                ):
                    self._found.setdefault(key, part)

    def find(self, written: str, base: str) -> str:
        """The image as a data URI if the message contains it, else the address as written."""
        part = self._found.get(written) or self._found.get(urljoin(base, written) if base else "")
        raw = part.get_payload(decode=True) if part is not None else None
        if part is None or not isinstance(raw, bytes):
            return written
        return f"data:{part.get_content_type()};base64,{base64.b64encode(raw).decode('ascii')}"


@dataclass
class _Reading:
    """Makes the parts of a mail and of the mails forwarded in it."""

    warnings: list[str] = field(default_factory=list)
    hidden: list[HiddenText] = field(default_factory=list)
    bodies: int = 0

    def read_mail(self, message: Message, number: str, depth: int) -> Iterator[Part]:
        """The parts of a mail: subject, addresses and text."""
        prefix = f"part={number};" if number else ""
        if subject := header_text(message, "subject"):
            level = min(1 + depth, 6)
            line = f"{'#' * level} {subject}"
            yield Part("heading", line, f"{prefix}header=subject", level, subject)
        tight = False
        for name in HEADERS:
            if words := header_text(message, name):
                line = f"{name.capitalize()}: {words}"
                yield Part("paragraph", line, f"{prefix}header={name}", tight=tight)
                tight = True
        yield from self._read(message, number, depth, _Images(message))

    def _read(self, part: Message, number: str, depth: int, images: _Images) -> Iterator[Part]:
        kind = part.get_content_type()
        if kind == "multipart/encrypted" or (kind == "application/pkcs7-mime" and not self.bodies):
            raise DocumentError("the mail is encrypted; save it decrypted", code="encrypted")
        if kind == "message/rfc822" and part.is_multipart():
            if depth < MAX_DEPTH:
                yield from self.read_mail(_subparts(part)[0], _number_below(number, 0), depth + 1)
            else:
                self.warnings.append("mails forwarded too deeply were not read")
        elif part.is_multipart() and kind != REPORT:
            children = list(enumerate(_subparts(part), 1))
            if kind == "multipart/alternative":
                children = self._choose(children)
            for index, child in children:
                yield from self._read(child, _number_below(number, index), depth, images)
        elif part.get_content_disposition() == "attachment" or kind not in READ:
            attached = part.get_content_disposition() == "attachment"
            if attached or part.get_content_maintype() != "image":
                name = part.get_filename() or kind
                self.warnings.append(
                    f"the attachment {name[:120]} was not read; save it as a file and ingest that"
                )
        else:
            yield from self._read_text(part, number or "1", images)

    def _choose(self, children: list[tuple[int, Message]]) -> list[tuple[int, Message]]:
        """The alternatives without either the plain text or the HTML: the one with fewer words that
        the other lacks is dropped, and its texts with such words are recorded as hidden.
        """
        plain = next((item for item in children if item[1].get_content_type() == TEXT), None)
        rich = next((item for item in children[::-1] if _read_pages(item[1])), None)
        if plain is None or rich is None:
            return children
        plain_texts = BLANK_LINES.split(unflow(plain[1], body_text(plain[1])))
        rich_texts = [text for page in _read_pages(rich[1]) for text in page.source_texts]
        only_plain = _count_words(plain_texts) - _count_words(rich_texts)
        only_rich = _count_words(rich_texts) - _count_words(plain_texts)
        if only_rich.total() > only_plain.total():
            unread, texts, lost = plain, plain_texts, only_plain
        else:
            unread, texts, lost = rich, rich_texts, only_rich
        for text in texts:
            if found := _count_words([text]) & lost:
                lost -= found
                self.hidden.append(HiddenText(0, "alternative", " ".join(text.split())))
        return [item for item in children if item is not unread]

    def _read_text(self, part: Message, number: str, images: _Images) -> Iterator[Part]:
        place = f"part={number}"
        if part.get_content_type() != "text/html":
            text = body_text(part)
            if part.get_content_type() == CALENDAR and self.bodies:
                text, _, description = text.partition("\n\n")  # the mail's text has it too
                if description:
                    self.hidden.append(HiddenText(0, "alternative", " ".join(description.split())))
            for begin, end in paragraph_spans(text):
                words = text[begin:end].rstrip()
                first = text.count("\n", 0, begin) + 1
                last = first + words.count("\n")
                self.bodies += 1
                yield Part("paragraph", unflow(part, words), f"{place};lines={first}-{last}")
            return
        try:
            page = _read_page(part)
        except DocumentError as error:
            if error.code != "empty_file":
                self.warnings.append(f"part {number} was not read: {error.message}")
            return
        self.bodies += len(page.pieces)
        self.warnings += page.notes
        self.hidden += page.hidden
        yield from page.parts(page.pieces, place, lambda target: images.find(target, ""))


def _read_pages(part: Message) -> list[Page]:
    """The readable pages in a part."""
    found = []
    for leaf in part.walk():
        if leaf.get_content_type() == "text/html":
            with suppress(DocumentError):
                found.append(_read_page(leaf))
    return found


def _count_words(texts: Iterable[str]) -> Counter[str]:
    """The number of occurrences of each word, without addresses, because only plain text spells
    them out.
    """
    return Counter(Line.of(ADDRESS.sub(" ", "\n".join(texts)).split()).words())


def _find_problems(message: Message, text: str, blocks: Sequence[Block]) -> dict[int, str]:
    parts = dict(number_parts(message))
    bad: dict[int, str] = {}
    rich: list[Block] = []
    for block in blocks:
        match = re.fullmatch(
            r"(?:part=([\d.]+);)?(?:header=(\w+)|lines=(\d+)-(\d+)|(xpath=.*))",
            block.locator,
            re.DOTALL,
        )
        owner = parts.get(match[1]) if match and match[1] else message
        if match is None or owner is None:
            bad[block.ordinal] = f"no part at {block.locator}"
        elif match[5]:
            rich.append(block)
        elif match[2]:
            value = re.sub(r"^(?:#+ |\w+: )", "", text[block.start : block.end])
            if letters(value) != letters(header_text(owner, match[2])):
                bad[block.ordinal] = f"the header {match[2]} has different text in the file"
        else:
            lines = body_text(owner).split("\n")[int(match[3]) - 1 : int(match[4])]
            if unflow(owner, "\n".join(lines).rstrip()) != text[block.start : block.end]:
                bad[block.ordinal] = f"the file has different text at {block.locator}"
    return bad | find_mismatched(lambda place: _read_page(parts[place[5:-1]]), text, rich)
