"""What must hold of each kind of bad input, as rules that a program can check."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rag_platform.ir import Chunk, Facts, MediaLink, Section, View
from rag_platform.loaders.markdown import block_parser, parse
from rag_platform.loaders.text import line_starts
from rag_platform.text.segmentation import terms

# for one file and its neighbour: twice page_seconds, and the start of new children on a busy
# machine
SECONDS = 120.0
QUICK_SECONDS = 15.0  # for texts made to cost more than linear time
MAX_CHUNK = 8 * 800  # a table row or a fence may be longer than a chunk, up to this


@dataclass(frozen=True)
class Outcome:
    """What became of one file."""

    landed: bool
    seconds: float
    neighbour: bool
    code: str = ""
    reason: str = ""
    loader: str = ""
    facts: Facts | None = None
    text: str = ""  # after normalisation
    links: tuple[MediaLink, ...] = ()
    sections: tuple[Section, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    views: tuple[View, ...] = ()
    warnings: tuple[str, ...] = ()
    unproved: tuple[str, ...] = ()
    connections: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    home: Path | None = None

    def said(self) -> str:
        """The outcome in a few words."""
        if not self.landed:
            return f"refused {self.code}: {self.reason}"
        if self.files:
            return f"landed {len(self.sources)} of {len(self.files)} files"
        pictures = (
            f", {sum(bool(link.asset_id) for link in self.links)} of {len(self.links)} pictures"
            if self.links
            else ""
        )
        warning = f"; warning: {self.warnings[0]}" if self.warnings else ""
        return f"landed by {self.loader}, {len(self.chunks)} chunks{pictures}{warning}"

    @property
    def words(self) -> str:
        """Everything the chunks say."""
        return "\n".join(chunk.chunk_text for chunk in self.chunks)


Facets = Mapping[str, object]
Rule = Callable[[Outcome, Path, Facets], str]  # what is wrong, empty when nothing is


def problem(file: str, kind: str, facets: Facets, path: Path, outcome: Outcome) -> str:
    """What is wrong with the outcome of a file; empty when all that is expected of its kind
    holds.
    """
    if wrong := _always(outcome):
        return wrong
    for pattern, rule in RULES:
        if re.search(pattern, f"{file} | {kind}") and (wrong := rule(outcome, path, facets)):
            return wrong
    return ""


def _always(outcome: Outcome) -> str:
    """No lost neighbour, no hang, nothing fetched; a refusal has a code and a reason in words;
    nothing lands empty without a word.
    """
    if not outcome.neighbour:
        return "the neighbour was lost"
    if outcome.seconds > SECONDS:
        return f"it took {outcome.seconds:.0f} s, above {SECONDS:.0f}"
    if outcome.connections:
        return f"connected: {outcome.connections[0]}"
    if not outcome.landed:
        if not outcome.code or outcome.code in ("internal_error", "document_failed", "unreadable"):
            return f"the refusal has no clear code ({outcome.code!r})"
        return (
            "the reason is no sentence"
            if len(outcome.reason.split()) < 4 or "Traceback" in outcome.reason
            else ""
        )
    if outcome.unproved:
        return f"not proved: {outcome.unproved[0]}"
    if (
        not outcome.files
        and not any(chunk.chunk_text for chunk in outcome.chunks)
        and not outcome.warnings
    ):
        return "it landed without text and without a warning"
    return ""


# --- small rules, put together below ------------------------------------------------------------


def lands(outcome: Outcome, path: Path, facets: Facets) -> str:
    """The file is read."""
    return (
        ""
        if outcome.landed and outcome.words.strip()
        else f"no text of it landed ({outcome.code}: {outcome.reason})"
    )


def warns(outcome: Outcome, path: Path, facets: Facets) -> str:
    """Refused, or read with a warning."""
    return "" if not outcome.landed or outcome.warnings else "no warning"


def refused(*codes: str) -> Rule:
    """Refused with one of the codes."""

    def rule(outcome: Outcome, path: Path, facets: Facets) -> str:
        return (
            ""
            if not outcome.landed and outcome.code in codes
            else f"not refused with {' or '.join(codes)}"
        )

    return rule


def within(seconds: float) -> Rule:
    """Done in time."""

    def rule(outcome: Outcome, path: Path, facets: Facets) -> str:
        return "" if outcome.seconds <= seconds else f"{outcome.seconds:.1f} s, above {seconds:g}"

    return rule


def read_by(loader: str) -> Rule:
    """The content decided who reads it."""

    def rule(outcome: Outcome, path: Path, facets: Facets) -> str:
        return lands(outcome, path, facets) or (
            "" if outcome.loader == loader else f"read by {outcome.loader}, not {loader}"
        )

    return rule


def says(*phrases: str) -> Rule:
    """The chunks hold the phrases."""

    def rule(outcome: Outcome, path: Path, facets: Facets) -> str:
        words = " ".join(outcome.words.split())
        return lands(outcome, path, facets) or next(
            (f"{phrase!r} is lost" for phrase in phrases if phrase not in words), ""
        )

    return rule


def hides(phrase: str) -> Rule:
    """No chunk holds the phrase, and it is listed among what a page hides."""

    def rule(outcome: Outcome, path: Path, facets: Facets) -> str:
        if phrase in outcome.words:
            return f"{phrase!r} is searched"
        hidden = outcome.facts.summary.hidden if outcome.facts else ()
        listed = any(phrase in item.text for item in hidden)
        return lands(outcome, path, facets) or ("" if listed else f"{phrase!r} is not listed")

    return rule


def decoded_as(encoding: str) -> Rule:
    """The text is what the encoding says."""

    def rule(outcome: Outcome, path: Path, facets: Facets) -> str:
        wanted = path.read_bytes().decode(encoding).lstrip("\ufeff")
        found = outcome.facts.text if outcome.facts else ""
        return lands(outcome, path, facets) or (
            "" if found == wanted else f"read as {found[:40]!r}"
        )

    return rule


def whole(outcome: Outcome, path: Path, facets: Facets) -> str:
    """Every visible character of the normalised text stands in a chunk."""
    at = 0
    for chunk in sorted(outcome.chunks, key=lambda chunk: chunk.norm_start):
        if gap := outcome.text[at : chunk.norm_start].strip():
            return f"{gap[:60]!r} is lost"
        at = max(at, chunk.norm_end)
    return lands(outcome, path, facets) or (
        f"{gap[:60]!r} is lost" if (gap := outcome.text[at:].strip()) else ""
    )


def body_indexed(outcome: Outcome, path: Path, facets: Facets) -> str:
    """The last line of the file is found, whatever its front matter is."""
    line = path.read_text(encoding="utf-8").strip().splitlines()[-1].strip("# -")
    return lands(outcome, path, facets) or (
        "" if line in outcome.words else f"the line {line!r} is lost"
    )


def same_structure_as_lf(outcome: Outcome, path: Path, facets: Facets) -> str:
    """Headings and kinds of blocks are those of the file with LF."""
    text = re.sub(r"\r\n?", "\n", path.read_bytes().decode("utf-8"))
    wanted = [(block.kind, block.title) for block in parse(text, 0, line_starts(text))[0]]
    found = [(block.kind, block.title) for block in outcome.facts.blocks] if outcome.facts else []
    return lands(outcome, path, facets) or (
        "" if found == wanted else f"blocks {found}, with LF {wanted}"
    )


def metadata_read(outcome: Outcome, path: Path, facets: Facets) -> str:
    """The front matter is metadata, and no part of the text."""
    read = (
        outcome.facts is not None
        and outcome.facts.summary.metadata
        and "title:" not in outcome.text
    )
    return lands(outcome, path, facets) or ("" if read else "the front matter was not recognised")


def real_headings_only(outcome: Outcome, path: Path, facets: Facets) -> str:
    """Section titles are headings of CommonMark, nothing that only looks like one."""
    tokens = block_parser().parse(path.read_text(encoding="utf-8"))
    headings = [
        tokens[i + 1].content for i, token in enumerate(tokens) if token.type == "heading_open"
    ]
    titles = (
        [block.title for block in outcome.facts.blocks if block.kind == "heading"]
        if outcome.facts
        else []
    )
    return lands(outcome, path, facets) or (
        "" if len(titles) == len(headings) else f"headings {titles}, CommonMark has {headings}"
    )


def distinct_ids(outcome: Outcome, path: Path, facets: Facets) -> str:
    """No two chunks share an id, and every section's text is there."""
    ids = {chunk.chunk_id for chunk in outcome.chunks}
    return whole(outcome, path, facets) or (
        "" if len(ids) == len(outcome.chunks) else "chunk ids repeat"
    )


def rows_whole_with_header(outcome: Outcome, path: Path, facets: Facets) -> str:
    """Each row of the table stands whole in a chunk whose view has the header's words."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    header = set(re.findall(r"\w+", lines[0]))
    views = {view.chunk_id: view.sparse_text for view in outcome.views}
    held: dict[str, str] = {}
    for chunk in outcome.chunks:
        held.update((line, chunk.chunk_id) for line in chunk.chunk_text.splitlines())
    for line in lines[2:]:
        if line not in held:
            return f"the row {line!r} is cut"
        if not header <= set(re.findall(r"\w+", views[held[line]])):
            return f"the row {line!r} has no header in its view"
    return ""


def bounded(limit: int) -> Rule:
    """No chunk is longer, and none starts inside a cluster."""

    def rule(outcome: Outcome, path: Path, facets: Facets) -> str:
        longest = max((len(chunk.chunk_text) for chunk in outcome.chunks), default=0)
        if longest > limit:
            return f"a chunk of {longest} characters"
        broken = any(
            unicodedata.combining(chunk.chunk_text[0])
            for chunk in outcome.chunks
            if chunk.chunk_text
        )
        return whole(outcome, path, facets) or ("a chunk starts inside a cluster" if broken else "")

    return rule


def one_form(outcome: Outcome, path: Path, facets: Facets) -> str:
    """A query in one normal form has the terms of the text in the other."""
    text = path.read_text(encoding="utf-8")
    found = terms(unicodedata.normalize("NFKC", outcome.words).lower())
    missing = [
        term
        for form in ("NFC", "NFD")
        for term in terms(unicodedata.normalize("NFKC", unicodedata.normalize(form, text)).lower())
        if term not in found
    ]
    return lands(outcome, path, facets) or (f"{missing[0]!r} is not found" if missing else "")


def plain_words(outcome: Outcome, path: Path, facets: Facets) -> str:
    """No control or invisible character is left between letters of chunks."""
    odd = [
        char
        for char in outcome.words
        if unicodedata.category(char) in ("Cc", "Cf") and char not in "\n\t"
    ]
    return lands(outcome, path, facets) or (f"{odd[0]!r} is left" if odd else "")


def nothing_read_outside(outcome: Outcome, path: Path, facets: Facets) -> str:
    """Every picture is recorded as rejected with a reason, none has bytes."""
    if not outcome.links:
        return "no picture is recorded"
    return next(
        (
            f"{link.origin_ref}: {link.asset_id[:8] or 'no reason'}"
            for link in outcome.links
            if link.asset_id or not link.reason
        ),
        "",
    )


def no_payload(outcome: Outcome, path: Path, facets: Facets) -> str:
    """The base64 of a data URI is no text to search."""
    texts = [re.sub(r"asset://[0-9a-f]{64}", "", view.sparse_text) for view in outcome.views]
    longest = max(
        (len(run) for text in texts for run in re.findall(r"[A-Za-z0-9+/=]{64,}", text)), default=0
    )
    return lands(outcome, path, facets) or (
        f"{longest} characters of base64 in a view" if longest else ""
    )


def not_logged(outcome: Outcome, path: Path, facets: Facets) -> str:
    """No long word of the document stands in the logs."""
    words = re.findall(r"[A-Za-z0-9/+]{20,}", path.read_text(encoding="utf-8"))
    logs = [
        file.read_text(encoding="utf-8") for file in (outcome.home or path).rglob("logs/*.jsonl")
    ]
    return next(
        (f"{word[:8]}… stands in a log" for word in words for log in logs if word in log), ""
    )


def picture(*, stored: bool | None, mime: str = "", reasons: tuple[str, ...] = ()) -> Rule:
    """The one picture of the document is stored, or missing for a reason; the document lands either
    way.
    """

    def rule(outcome: Outcome, path: Path, facets: Facets) -> str:
        if wrong := says("Before it.", "Behind it.")(outcome, path, facets):
            return wrong
        link = outcome.links[0] if outcome.links else None
        if link is None:
            return "the picture is not recorded"
        if bool(link.asset_id) == bool(link.reason):
            return f"neither stored nor missing for a reason: {link}"
        if stored is not None and bool(link.asset_id) != stored:
            return f"asset {link.asset_id[:8]!r}, reason {link.reason!r}"
        if mime and link.mime != mime:
            return f"mime {link.mime}"
        return (
            f"reason {link.reason!r}"
            if reasons and not link.asset_id and not link.reason.startswith(reasons)
            else ""
        )

    return rule


def every_link_told(outcome: Outcome, path: Path, facets: Facets) -> str:
    """Each reference is stored or missing for a reason, and equal bytes are one asset."""
    bad = [link.origin_ref for link in outcome.links if bool(link.asset_id) == bool(link.reason)]
    twins = {
        link.asset_id for link in outcome.links if re.search(r"dup-[ab]\.png$", link.origin_ref)
    }
    if bad or not any(link.reason == "not_found" for link in outcome.links):
        return f"not told: {bad or 'the missing one'}"
    return "" if len(twins) == 1 and "" not in twins else f"equal bytes are {len(twins)} assets"


def all_files(outcome: Outcome, path: Path, facets: Facets) -> str:
    """Every regular file that is not hidden is there under its name, and nothing else."""
    wanted = {
        name for name in outcome.files if not any(part.startswith(".") for part in name.split("/"))
    }
    found = {name.partition("/")[2] or name for name in outcome.sources} | set(outcome.sources)
    missing = sorted(name for name in wanted if name not in found)
    extra = sorted(name for name in outcome.sources if name not in wanted)
    return f"missing {missing}, too many {extra}" if missing or extra else ""


def by_password(outcome: Outcome, path: Path, facets: Facets) -> str:
    """A PDF that asks for a password is refused as such; one whose text PDFium reads has text, or
    says why not.
    """
    if facets.get("needs_password"):
        return refused("encrypted")(outcome, path, facets)
    if not facets.get("error") and int(str(facets.get("chars_first3", 0))) >= 100:
        return lands(outcome, path, facets)
    return ""


RULES: tuple[tuple[str, Rule], ...] = (
    (r"truncated-half|pdf truncated$", warns),
    (r"trailing NULs|user password ''|hidden prompt injection", lands),
    (r"hidden prompt injection", hides("instructions")),
    (r"/Count says|page tree loop|no-pages|huge-page", within(QUICK_SECONDS)),
    (r"zero pages", warns),
    (r"user password 'geheim'", refused("encrypted")),
    (r"png-called\.pdf|zip-called\.pdf|elf\.md", refused("unsupported_type", "binary_content")),
    (r"pdf-called\.md", read_by("pdf")),
    (r"html-called\.md", read_by("html")),
    (r"types/(no-extension|UPPER|doc\.)", read_by("markdown")),
    (r"empty/(empty|bom-only|blank|frontmatter-only)", refused("empty_file")),
    (r"empty/header-only", refused("broken_file", "empty_file")),
    (r"empty/(comment-only|images-only)", warns),
    (r"utf-16-le", decoded_as("utf-16")),
    (r"gbk\.md", decoded_as("gbk")),
    (r"big5\.md", decoded_as("big5")),
    (r"latin-1\.md", decoded_as("latin-1")),
    (
        r"invalid-utf8",
        lambda o, p, f: (
            lands(o, p, f) or warns(o, p, f) or ("" if "\ufffd" in o.words else "no U+FFFD")
        ),
    ),
    (r"nul-bytes|control-chars", plain_words),
    (r"nfd-nfc", one_form),
    (r"newlines: (crlf|cr-only|mixed)", same_structure_as_lf),
    (r"newlines: unicode", whole),
    (r"BOM \+ CRLF", metadata_read),
    (r"no newline at the end", says("last line without newline")),
    (r"^frontmatter/", body_indexed),
    (
        r"frontmatter/(invalid-yaml|yaml-bomb|python-object|list-root|duplicate-keys|unclosed)",
        warns,
    ),
    (r"heading look-alikes", real_headings_only),
    (r"same heading path|levels skip", distinct_ids),
    (r"fence never closed|HTML table|400 columns|deep list|deep block quote", whole),
    (r"table longer than any chunk", rows_whole_with_header),
    (r"ragged", says("a \\| b")),
    (r"deep|pathological", within(QUICK_SECONDS)),
    (r"no headings|100 kB token|6000 Han", bounded(MAX_CHUNK)),
    (
        r"no headings|100 kB token|6000 Han",
        lambda o, p, f: "" if len(o.chunks) > 3 else f"{len(o.chunks)} chunks",
    ),
    (r"SSRF and path traversal", nothing_read_outside),
    (r"data: and javascript", no_payload),
    (r"HTML and template injection", says("inner **text**")),
    (r"prompt injection in a document", whole),
    (r"secret-like", not_logged),
    (r"images/(sub/)?dup-|same-pixels|cmyk|animated", picture(stored=True)),
    (r"one-pixel|truncated\.jpg|\.svg \|", picture(stored=None)),
    (r"images/zero", picture(stored=False, reasons=("empty_file",))),
    (r"jpeg-called\.png", picture(stored=True, mime="image/jpeg")),
    (
        r"bomb\.png|header-lies",
        picture(stored=False, reasons=("too_many_pixels", "broken_image", "too_large")),
    ),
    (r"images/uses\.md", every_link_told),
    (r"archives/zip-", refused("unsupported_type")),
    (r"odd-names", all_files),
    (r"\| pdf-robust$", by_password),
)
