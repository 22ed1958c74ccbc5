"""Checks citations and answers: whether the raw bytes of its file prove each cited chunk, and
whether the cited chunks support each sentence of an answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

from rag_platform.answering.citations import (
    ClaimCheck,
    check_claims,
    find_cited,
    make_citation,
    number_links,
    strip_marks,
)
from rag_platform.answering.constants import CLEAR_SHARE
from rag_platform.answering.differences import find_difference
from rag_platform.answering.engine import answer as ask
from rag_platform.answering.groundedness import (
    can_compare,
    find_names,
    find_span,
    is_quoted,
    missing_names,
    support,
    support_by,
)
from rag_platform.api.envelopes import optional_fields, without_paths
from rag_platform.api.places import lease_chunk
from rag_platform.api.query_data import source_line
from rag_platform.contract.schema import ProofData, SentencePart, SourcePart
from rag_platform.contract.traces import Comparison, ProvedData
from rag_platform.errors import InputError, NotFoundError
from rag_platform.ir import Candidate, Chunk, Hit, QueryRequest, Version
from rag_platform.retrieval.hydration import hit_of
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.namespaces import choose_namespaces
from rag_platform.text.scripts import is_wide
from rag_platform.text.wording import pluralise

MAX_SOURCES = 30
MAX_SENTENCES = 40  # of an answer; a sentence without a source costs a search
_SEARCHED = 5  # hits considered for a sentence that cites nothing
_NEAREST_CHARS = 160  # of the passage shown with a sentence that it supports
_LIMITS = (
    "Words and their places, names, numbers, negations and opposites were compared, not meanings:"
    " compare a sentence that does not stand there word for word with its passage yourself."
)

State = Literal["current", "changed", "gone"]


@dataclass(frozen=True, slots=True)
class _CitedChunk:
    """A cited chunk of the published release, of an older one, or of none; `reason` says why it is
    not proved.
    """

    chunk_id: str
    state: State
    hit: Hit
    reason: str = ""


def verify_answer(
    library: Library, answer: str = "", sources: Sequence[str] = (), names: Sequence[str] = ()
) -> ProofData:
    """The proof of each chunk id in `sources` or in a link of `answer`, and the state of each
    sentence of `answer`, whose mark [n] cites sources[n-1].

    A sentence is `proven`, `changed` (supported by a version that is no longer live) or
    `unsupported`. One without a mark is compared with all sources, or if there are none with what a
    search finds for it. Raises InputError for too much or nothing to check or a mark without a
    source, NotFoundError if nothing is published to search.
    """
    ids = [source.removeprefix("chunk://") for source in sources]
    text, ids = number_links(answer if ids else strip_marks(answer), ids)
    if not ids and not answer.strip():
        raise InputError("give sources, an answer, or both", code="nothing_to_verify")
    if len(ids) > MAX_SOURCES:
        raise InputError(f"{len(ids)} sources; give {MAX_SOURCES} at most", code="too_many_sources")
    beyond = [number for number in find_cited(text, 999) if number > len(ids)]
    if ids and beyond:
        raise InputError(
            f"the answer cites [{beyond[0]}], and {len(ids)} sources were given: give the chunk of"
            " every [n], in order",
            code="bad_marks",
        )
    found = [_find_source(library, chunk_id, names) for chunk_id in ids]
    claims = check_claims(text, [source.hit for source in found])
    if len(claims) > MAX_SENTENCES:
        raise InputError(
            f"the answer has {len(claims)} sentences to check; give {MAX_SENTENCES} at most",
            code="answer_too_long",
        )
    sentences = [_judge(library, claim, found, names) for claim in claims]
    parts = [_source_part(number, source) for number, source in enumerate(found, 1)]
    failures = [part for part in parts if part["state"] != "current" or part.get("reason")]
    data: ProofData = {
        "markdown": "",
        "checked": len(parts),
        "failed": len(failures),
        "sources": parts,
        "sentences": sentences,
    }
    data["markdown"] = _markdown(data, found)
    return data


def prove_chunk(library: Library, chunk_id: str, namespace: str | None = None) -> ProvedData:
    """The proof of one chunk from the bytes of its file. Raises NotFoundError."""
    from rag_platform.releases.proofs.verification import verify_release

    began = time.monotonic()
    with lease_chunk(library, chunk_id, namespace) as leased:
        chunk, version, space = leased.row.chunk, leased.version, leased.lease.namespace
        data: ProvedData = {
            "chunk_id": chunk_id,
            "state": leased.state,
            "proved": False,
            "edited": bool(chunk.edited_from),
            "reason": "",
            "file_sha256": version.file_sha256,
            "size": version.size,
            "compared": [],
            "warnings": [],
            "release_id": leased.lease.release_id,
            "seconds": 0.0,
        }
        if leased.state == "changed":
            live = _live_version(library, space, chunk.doc_id)
            now = f"version {live} is live now" if live else "no version of it is live now"
            data["reason"] = f"it is of version {version.version_id}, {now}; only what is published"
            data["reason"] += " is proved"
            return data
        proof = verify_release(
            library.store, space, chunk_id=chunk_id, limits=library.settings.limits
        )
        data["reason"] = str(without_paths("; ".join(failure.reason for failure in proof.failures)))
        data["proved"] = not proof.failures and proof.checked > 0
        data["warnings"] = list(without_paths(list(proof.warnings)))
        data["compared"] = list(_compare(chunk, version, alone=bool(proof.warnings)))
        data["seconds"] = round(time.monotonic() - began, 3)
    return data


def _compare(chunk: Chunk, version: Version, *, alone: bool) -> Iterator[Comparison]:
    """The comparisons that the proof of the chunk consists of."""
    from rag_platform.intake import second_readers
    from rag_platform.registry import traits

    engine = traits("loader", version.loader).engine
    yield {"what": "file_hash", "detail": version.file_sha256}
    if not chunk.chunk_text:
        yield {"what": "image", "detail": ", ".join(chunk.asset_ids)}
    elif chunk.byte_start is not None:
        yield {"what": "bytes", "detail": f"{chunk.byte_start}-{chunk.byte_end}"}
        yield {"what": "lines", "detail": f"{chunk.line_start}-{chunk.line_end}"}
    elif engine and chunk.page_start is not None:
        yield {"what": "page_letters", "detail": engine}
        yield {"what": "page_boxes", "detail": f"{chunk.page_start}-{chunk.page_end}"}
    else:
        yield {"what": "read_again", "detail": version.loader}
        yield {"what": "locator", "detail": chunk.locator}
    if chunk.chunk_text and version.loader in second_readers.ENGINES and not alone:
        yield {"what": "second_reader", "detail": second_readers.ENGINES[version.loader]}
    yield {"what": "names", "detail": f"{chunk.chunk_id}, {chunk.section_path}"}
    if chunk.edited_from:
        yield {"what": "origins", "detail": ", ".join(chunk.edited_from)}


def _find_source(library: Library, chunk_id: str, names: Sequence[str]) -> _CitedChunk:
    from rag_platform.releases.proofs.verification import verify_release

    try:
        with lease_chunk(library, chunk_id, names) as (lease, _, state):
            space, row = lease.namespace, lease.release.catalog.hit_rows([chunk_id])[chunk_id]
            hit = hit_of(Candidate(chunk_id, 1.0, "given"), row, rank=1, namespace=space)
            if state == "changed":
                live = _live_version(library, space, hit.doc_id)
                now = f"; version {live} is live now" if live else ""
                return _CitedChunk(chunk_id, state, hit, f"it is of version {hit.version_id}{now}")
            proof = verify_release(
                library.store, space, chunk_id=chunk_id, limits=library.settings.limits
            )
            reason = proof.failures[0].reason if proof.failures else ""
            return _CitedChunk(chunk_id, state, hit, str(without_paths(reason)))
    except NotFoundError as error:
        if error.code != "unknown_chunk":
            raise
    nothing = Hit(0, chunk_id, 0.0, "", "", "", "", "", "", "", 0, "")
    return _CitedChunk(chunk_id, "gone", nothing, "no release holds it: deleted, or never there")


def _live_version(library: Library, namespace: str, doc_id: str) -> str:
    with library.lease(namespace) as lease:
        document = lease.release.catalog.document(doc_id)
        return (document.live_version or "") if document else ""


def _judge(
    library: Library, claim: ClaimCheck, sources: Sequence[_CitedChunk], names: Sequence[str]
) -> SentencePart:
    part: SentencePart = {"sentence": claim.sentence, "state": "unsupported", "sources": []}
    cited = [sources[number - 1] for number in claim.marks]
    reason = claim.reason or _find_difference(claim.sentence, cited)
    if cited and not any(it.hit.chunk_text for it in cited):
        reason = "it cites a picture: its bytes can be proved, not what a model read in it"
    if not cited:
        own = [it for it in sources if _is_clear(claim.sentence, it.hit)]
        if not sources:
            own = _search(library, claim.sentence, names)
            reason = "no passage of the library clearly bears it out"
        # a contradicting passage counts only if no other one supports the sentence
        found = [(_find_difference(claim.sentence, [it]), it) for it in own]
        if found:
            reason, source = min(found, key=lambda item: bool(item[0]))
            cited = [source]
    part["sources"] = [source.chunk_id for source in cited]
    unproved = [it for it in cited if it.state == "gone"]
    unproved += [it for it in cited if it.state == "current" and it.reason]
    if unproved:
        part["reason"] = f"{unproved[0].chunk_id}: {unproved[0].reason}"
    elif reason:
        part["reason"] = reason
    else:
        part["state"] = "proven"
        if changed := [it for it in cited if it.state == "changed"]:
            part["state"], part["reason"] = "changed", changed[0].reason
        _add_evidence(part, [source.hit for source in cited])
    return part


def _is_clear(sentence: str, hit: Hit) -> bool:
    """True if a passage supports a sentence clearly enough to become its source. A passage in
    another language never does: only its numbers and identifiers can be compared.
    """
    overlap = support(sentence, [hit])
    return overlap.enough and overlap.words_count and overlap.share >= CLEAR_SHARE


def _find_difference(sentence: str, sources: Sequence[_CitedChunk]) -> str:
    """Why passages do not support a sentence although they have its words; empty if they may."""
    hits = [source.hit for source in sources]
    text = "\n".join(hit.chunk_text for hit in hits)
    quoted = any(is_quoted(sentence, hit.chunk_text) for hit in hits)
    if hits and not quoted and not can_compare(sentence, text):
        return "it is in another language than the cited text, and no number or identifier tells"
    if (different := find_difference(sentence, hits)) or quoted or is_wide(text):
        return different
    around = "\n".join(f"{hit.doc_title}\n{hit.section_path}\n{hit.source_uri}" for hit in hits)
    lacking = missing_names(find_names(sentence), f"{text}\n{around}") if hits else []
    return f"names that the cited text does not hold: {', '.join(lacking[:5])}" if lacking else ""


def _add_evidence(part: SentencePart, cited: Sequence[Hit]) -> None:
    """Record in the part what supports the sentence: its text, its words or its numbers."""
    sentence = part["sentence"]
    if any(is_quoted(sentence, hit.chunk_text) for hit in cited):
        part["compared"] = "text"
        return
    overlap = support(sentence, cited)
    part["compared"] = "words" if overlap.words_count else "numbers"
    if overlap.words_count:
        part["share"] = round(overlap.share, 2)
        text = max((hit.chunk_text for hit in cited), key=lambda it: support_by(sentence, it).share)
        if span := find_span(sentence, text):
            nearest = " ".join(text[slice(*span)].split())
            long = len(nearest) > _NEAREST_CHARS
            part["nearest"] = f"{nearest[:_NEAREST_CHARS]}…" if long else nearest


def _search(library: Library, sentence: str, names: Sequence[str]) -> list[_CitedChunk]:
    """The best published chunk that supports a sentence, with its proof, if possible one that does
    not contradict it; empty if there is none. Raises NotFoundError if nothing is published.
    """
    spaces = choose_namespaces(library, names)
    request = QueryRequest(
        sentence[: library.settings.limits.max_query_chars],
        spaces[0],
        top_k=_SEARCHED,
        namespaces=spaces if len(spaces) > 1 else (),
        answer=False,
        infer=False,
    )
    # what a model read in a picture proves nothing
    hits = [replace(hit, picture_text="") for hit in ask(library, request).hits]
    enough = [hit for hit in hits if _is_clear(sentence, hit)]
    enough.sort(key=lambda hit: bool(_find_difference(sentence, [_CitedChunk("", "current", hit)])))
    return [
        _find_source(library, hit.chunk_id, (hit.namespace or spaces[0],)) for hit in enough[:1]
    ]


def _source_part(number: int, source: _CitedChunk) -> SourcePart:
    part = {
        "id": number,
        "chunk_id": source.chunk_id,
        "state": source.state,
        "doc_id": source.hit.doc_id,
        "version_id": source.hit.version_id,
        "source_uri": source.hit.source_uri,
        **optional_fields(reason=source.reason),
    }
    return cast(SourcePart, part)


def _markdown(data: ProofData, found: Sequence[_CitedChunk]) -> str:
    """A verdict, then every sentence with its state, then every source with its proof."""
    lines: list[str] = []
    if data["sentences"]:
        counts = {
            state: sum(row["state"] == state for row in data["sentences"])
            for state in ("proven", "changed", "unsupported")
        }
        named = {"changed": "changed since"}
        counted = ", ".join(f"{n} {named.get(state, state)}" for state, n in counts.items())
        lines = [f"{pluralise(len(data['sentences']), 'sentence')} checked: {counted}.", ""]
        lines += [
            f"- **{named.get(row['state'], row['state'])}**{_format_evidence(row)}:"
            f" {row['sentence']}"
            + (f" — {row['reason']}" if "reason" in row else "")
            + (f"\n  nearest: {row['nearest']}" if "nearest" in row else "")
            for row in data["sentences"]
        ]
        if any(row.get("compared", "text") != "text" for row in data["sentences"]):
            lines += ["", _LIMITS]
        lines.append("")
    for part, source in zip(data["sources"], found, strict=True):
        proof = {"current": "proved by the bytes of its file", "changed": "changed since"}
        state = proof.get(part["state"], part["state"])
        reason = part.get("reason", "")
        if reason:
            state = reason if part["state"] == "current" else f"{state}: {reason}"
        where = source_line(make_citation(part["id"], source.hit)) or "unknown"
        lines.append(f"[{part['id']}] {where} (`{part['chunk_id']}`): {state}")
    return "\n".join(lines).strip()


def _format_evidence(row: SentencePart) -> str:
    """What supports the sentence, as a suffix of its state."""
    if row.get("compared") == "words":
        return f" by {row.get('share', 0):.0%} of its words"
    names = {"text": " word for word", "numbers": " by numbers and identifiers alone"}
    return names.get(row.get("compared", ""), "")
