"""Manual edits of a document's chunks: operations applied in sequence to the chunks of a version.

An operation is a JSON object with `op`, `chunk_id` and further arguments:

    edit_text        text       replaces the chunk's text
    split_at         offset     makes two chunks, the second from this character of chunk_text on
    merge_with_next  (next)     merges the chunk with the next one of its type, whose id is recorded
                                as `next` when the operation is made
    move_before      target     moves the chunk inside its document; a parent takes its children
    move_after       target     along
    reparent         parent_id  moves a child to another parent
    disable, enable             a disabled chunk stays in the draft but is left out of the release

Ids refer to the state after the previous operations; chunks that an operation does not change keep
their ids. Splitting or merging unedited chunks makes slices of the normalised text, with lines,
pages and bytes of their own, which are proved like other chunks. Any other text counts as edited:
its `edited_from` holds the ids of the version's chunks it came from, and it keeps their location.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rag_platform.chunkers.chunks import chunk_name, slice_fields, text_fields
from rag_platform.chunkers.source_locations import Places, attach_images
from rag_platform.config.ingestion import CleaningConfig
from rag_platform.errors import InputError, NotFoundError
from rag_platform.ir import Chunk, Json, MediaLink
from rag_platform.normalisation.edits import Normalised, fingerprint_text

MAX_CHARS = 100_000  # of an edited text, because people and models read chunks as a whole
_SHOWN = 10
BETWEEN = "\n\n"  # separates merged texts that are not adjacent in the document


@dataclass(frozen=True, slots=True)
class Base:
    """The chunks that a draft is based on, and what is needed to cut the text differently."""

    namespace: str
    doc_id: str
    chunks: Sequence[Chunk]
    normalised: Normalised
    places: Places
    links: Sequence[MediaLink]
    cleaning: CleaningConfig

    def chunk(self, chunk_id: str) -> Chunk | None:
        """The version's own chunk with that id."""
        return next((chunk for chunk in self.chunks if chunk.chunk_id == chunk_id), None)


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk of a draft; `origins` are the version's own chunks that its text came from."""

    chunk: Chunk
    origins: tuple[str, ...]
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Problem:
    """An operation that could not be applied; `index` is its position among all operations."""

    index: int
    operation: Json
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Edited:
    """The result of applying operations to a version's chunks."""

    pieces: tuple[Piece, ...]  # in order, including disabled ones
    operations: tuple[Json, ...]  # those that were applied
    problems: tuple[Problem, ...]

    @property
    def chunks(self) -> list[Chunk]:
        """The chunks for a release: enabled ones, numbered in order; children of a disabled parent
        have no parent.
        """
        enabled = [piece.chunk for piece in self.pieces if piece.enabled]
        parents = {chunk.chunk_id for chunk in enabled if chunk.chunk_type == "parent"}
        return [
            replace(
                chunk,
                chunk_index=index,
                parent_id=chunk.parent_id if chunk.parent_id in parents else "",
            )
            for index, chunk in enumerate(enabled)
        ]


def apply(base: Base, operations: Sequence[Json]) -> Edited:
    """Apply the operations in order; those that cannot be applied become problems."""
    pieces = [Piece(chunk, (chunk.chunk_id,)) for chunk in base.chunks]
    applied: list[Json] = []
    problems: list[Problem] = []
    for index, operation in enumerate(operations):
        try:
            pieces, made = _apply_one(base, pieces, operation)
            applied.append(made)
        except InputError as error:
            problems.append(Problem(index, operation, error.code, error.message))
    return Edited(tuple(pieces), tuple(applied), tuple(problems))


def extend(base: Base, edited: Edited, operation: Json) -> Edited:
    """Apply one more operation. Raises InputError if it cannot be applied."""
    pieces, made = _apply_one(base, list(edited.pieces), operation)
    return Edited(tuple(pieces), (*edited.operations, made), edited.problems)


@dataclass(frozen=True, slots=True)
class _Step:
    """One operation on the piece at position `at`."""

    base: Base
    pieces: list[Piece]
    at: int
    operation: Json

    @property
    def piece(self) -> Piece:
        """The piece that the operation names."""
        return self.pieces[self.at]

    def replace(self, piece: Piece) -> list[Piece]:
        """The pieces with this one replaced by a piece of the same id."""
        return [*self.pieces[: self.at], piece, *self.pieces[self.at + 1 :]]


_Result = tuple[list[Piece], Json]  # the pieces afterwards, and the operation as recorded


def _apply_one(base: Base, pieces: list[Piece], operation: Json) -> _Result:
    name = str(operation.get("op"))
    if name not in OPERATIONS:
        raise InputError(
            f"unknown operation {name!r}; known: {', '.join(OPERATIONS)}", code="unknown_operation"
        )
    arguments, function = OPERATIONS[name]
    wanted = {"chunk_id": str, **arguments}
    optional = {"next"} if name == "merge_with_next" else set()
    for key, kind in wanted.items():
        if not isinstance(operation.get(key), kind) or isinstance(operation.get(key), bool):
            raise InputError(
                f"{name} needs {key} ({kind.__name__}), not {operation.get(key)!r}",
                code="bad_operation",
            )
    if extra := operation.keys() - {"op", *wanted, *optional}:
        raise InputError(
            f"{name} takes {', '.join(wanted)}, not {', '.join(sorted(extra))}",
            code="bad_operation",
        )
    return function(_Step(base, pieces, _position(base, pieces, operation["chunk_id"]), operation))


# --- the operations -----------------------------------------------------------------------------


def _edit_text(step: _Step) -> _Result:
    piece, operation = step.piece, step.operation
    text = operation["text"].replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise InputError(
            "a chunk without text could never be found; leave"
            f" {piece.chunk.chunk_id} out with disable instead",
            code="blank_text",
        )
    if bad := re.search("[\x00\ud800-\udfff]", text):
        raise InputError(
            f"the text holds {bad[0]!r}, which no file can store; leave it out", code="bad_text"
        )
    if len(text) > MAX_CHARS:
        raise InputError(
            f"the text has {len(text)} characters, above {MAX_CHARS}; ingest what is a document"
            " as one",
            code="text_too_long",
        )
    edited = _with_text(step.base, piece, text)
    return _replace(step, {step.at: [edited]}), {**operation, "text": text}


def _split_at(step: _Step) -> _Result:
    base, piece, offset = step.base, step.piece, step.operation["offset"]
    text = piece.chunk.chunk_text
    left, right = text[: max(0, offset)].rstrip(), text[max(0, offset) :].lstrip()
    if not left or not right:
        raise InputError(
            f"offset {offset} leaves a part of {piece.chunk.chunk_id} blank; give one inside its"
            f" {len(text)} characters",
            code="bad_offset",
        )
    if piece.chunk.edited_from:
        halves = [_with_text(base, piece, left), _with_text(base, piece, right)]
    else:
        start, end = piece.chunk.norm_start, piece.chunk.norm_end
        first = _part(base, piece, start, start + len(left))
        second = _part(base, piece, end - len(right), end)
        halves = _with_own_images(base, piece, [first, second])
    return _replace(step, {step.at: halves}), step.operation


def _merge_with_next(step: _Step) -> _Result:
    first, at, pieces, operation = step.piece, step.at, step.pieces, step.operation
    name, kind = first.chunk.chunk_id, first.chunk.chunk_type
    following = (i for i in range(at + 1, len(pieces)) if pieces[i].chunk.chunk_type == kind)
    then = next(following, None)
    if then is None:
        raise InputError(
            f"{name} is the last {kind} of the document; there is no next one to merge it with",
            code="no_next",
        )
    second = pieces[then]
    if operation.get("next", second.chunk.chunk_id) != second.chunk.chunk_id:
        raise InputError(
            f"{name} was to be merged with {operation['next']}, but the next chunk is"
            f" {second.chunk.chunk_id}; move that one behind it",
            code="other_next",
        )
    for piece in (first, second):
        if not piece.enabled:
            raise InputError(
                f"{piece.chunk.chunk_id} is disabled; enable it before it is merged",
                code="disabled_chunk",
            )
    merged = _replace(step, {at: [_join(step.base, first, second)], then: []})
    return merged, {**operation, "next": second.chunk.chunk_id}


def _move(step: _Step) -> _Result:
    pieces, operation = step.pieces, step.operation
    chunk, target = step.piece.chunk, operation["target"]
    moving = {step.at}
    if chunk.chunk_type == "parent":
        moving |= {i for i, p in enumerate(pieces) if p.chunk.parent_id == chunk.chunk_id}
    beside = _position(step.base, pieces, target)
    if beside in moving:
        raise InputError(
            f"{chunk.chunk_id} cannot be moved beside {target}, which moves with it; name another"
            " chunk",
            code="own_family",
        )
    rest = [piece for i, piece in enumerate(pieces) if i not in moving]
    place = rest.index(pieces[beside]) + (operation["op"] == "move_after")
    return [*rest[:place], *(pieces[i] for i in sorted(moving)), *rest[place:]], operation


def _reparent(step: _Step) -> _Result:
    piece, parent_id = step.piece, step.operation["parent_id"]
    if piece.chunk.chunk_type == "parent":
        raise InputError(
            f"{piece.chunk.chunk_id} is a parent; only a child can be given another one",
            code="not_a_child",
        )
    parent = step.pieces[_position(step.base, step.pieces, parent_id)]
    if parent.chunk.chunk_type != "parent":
        parents = [p.chunk.chunk_id for p in step.pieces if p.chunk.chunk_type == "parent"]
        known = (
            f"it has {', '.join(parents[:_SHOWN])}"
            if parents
            else "it has none, for its strategy cuts no parents"
        )
        raise InputError(
            f"{parent_id} is no parent of document {step.base.doc_id}; {known}", code="not_a_parent"
        )
    moved = replace(piece, chunk=replace(piece.chunk, parent_id=parent_id))
    return step.replace(moved), step.operation


def _enable(step: _Step) -> _Result:
    enabled = step.operation["op"] == "enable"
    return step.replace(replace(step.piece, enabled=enabled)), step.operation


OPERATIONS: Mapping[str, tuple[dict[str, type], Callable[[_Step], _Result]]] = {
    "edit_text": ({"text": str}, _edit_text),
    "split_at": ({"offset": int}, _split_at),
    "merge_with_next": ({}, _merge_with_next),
    "move_before": ({"target": str}, _move),
    "move_after": ({"target": str}, _move),
    "reparent": ({"parent_id": str}, _reparent),
    "enable": ({}, _enable),
    "disable": ({}, _enable),
}


# --- pieces -------------------------------------------------------------------------------------


def _position(base: Base, pieces: Sequence[Piece], chunk_id: str) -> int:
    found = next((i for i, piece in enumerate(pieces) if piece.chunk.chunk_id == chunk_id), None)
    if found is None:
        gone = (
            "an earlier operation changed it"
            if base.chunk(chunk_id)
            else "an earlier operation took it away, or it belongs to another version"
        )
        raise NotFoundError(
            f"document {base.doc_id} has no chunk {chunk_id!r} here ({gone}); `rag drafts show"
            f" {base.doc_id} --namespace {base.namespace}` lists those it has",
            code="unknown_chunk",
        )
    return found


def _slice(base: Base, piece: Piece, start: int, end: int) -> Piece:
    """The piece as the unedited normalised text[start:end]."""
    fields = slice_fields(base.normalised, base.places, start, end)
    return replace(piece, chunk=replace(piece.chunk, edited_from=(), **fields))


def _part(base: Base, piece: Piece, start: int, end: int) -> Piece:
    """A slice of the piece, with those of its origins that overlap the slice."""
    own = [base.chunk(origin) for origin in piece.origins]
    overlapping = tuple(
        chunk.chunk_id
        for chunk in own
        if chunk is not None and chunk.norm_start < end and start < chunk.norm_end
    )
    return replace(_slice(base, piece, start, end), origins=overlapping)


def _with_text(base: Base, piece: Piece, text: str) -> Piece:
    """The piece with this text: a slice of the document if the text equals it, else edited."""
    chunk = piece.chunk
    if text == base.normalised.text[chunk.norm_start : chunk.norm_end]:
        return _slice(base, piece, chunk.norm_start, chunk.norm_end)
    return replace(piece, chunk=replace(chunk, edited_from=piece.origins, **text_fields(text)))


def _join(base: Base, first: Piece, second: Piece) -> Piece:
    """Both pieces merged: a slice if they overlap or are adjacent in the document, else an edited
    text of both with a blank line between.
    """
    left, right = first.chunk, second.chunk
    images = tuple(dict.fromkeys((*left.asset_ids, *right.asset_ids)))
    origins = tuple(dict.fromkeys((*first.origins, *second.origins)))
    if right.chunk_text and not left.chunk_text:  # the first is an image chunk
        chunk = replace(right, parent_id=left.parent_id, asset_ids=images)
        return replace(second, chunk=chunk, origins=origins)
    piece = replace(first, chunk=replace(left, asset_ids=images), origins=origins)
    if not right.chunk_text:
        return piece
    start, end = min(left.norm_start, right.norm_start), max(left.norm_end, right.norm_end)
    overlapping = max(left.norm_start, right.norm_start) < min(left.norm_end, right.norm_end)
    adjacent = (
        left.norm_end <= right.norm_start
        and not base.normalised.text[left.norm_end : right.norm_start].strip()
    )
    spanning = _slice(base, piece, start, end)
    if (adjacent or overlapping) and not left.edited_from and not right.edited_from:
        return spanning
    text = text_fields(left.chunk_text + BETWEEN + right.chunk_text)
    return replace(spanning, chunk=replace(spanning.chunk, edited_from=origins, **text))


def _with_own_images(base: Base, piece: Piece, halves: Sequence[Piece]) -> list[Piece]:
    """The halves with the piece's images, each in its half; images without a position go to the
    first.
    """
    own = piece.chunk.asset_ids
    bare = [replace(half.chunk, asset_ids=()) for half in halves]
    placed = attach_images(
        bare, [link for link in base.links if link.asset_id in own], base.places.blocks
    )
    unplaced = tuple(
        image for image in own if not any(image in chunk.asset_ids for chunk in placed)
    )
    placed[0] = replace(placed[0], asset_ids=(*placed[0].asset_ids, *unplaced))
    return [replace(half, chunk=chunk) for half, chunk in zip(halves, placed, strict=True)]


def _replace(step: _Step, changes: Mapping[int, Sequence[Piece]]) -> list[Piece]:
    """The pieces with those at the given positions replaced. New pieces get their ids, and children
    of a replaced parent a new parent.
    """
    pieces = step.pieces
    taken_ids = {piece.chunk.chunk_id for i, piece in enumerate(pieces) if i not in changes}
    result: list[Piece] = []
    created: list[Piece] = []
    for i, piece in enumerate(pieces):
        for new in changes.get(i, (piece,)):
            if i in changes:
                new = _with_id(step.base, new, taken_ids)
                taken_ids.add(new.chunk.chunk_id)
                created.append(new)
            result.append(new)
    gone = {pieces[i].chunk.chunk_id for i in changes if pieces[i].chunk.chunk_type == "parent"}
    return [_adopt(piece, created) if piece.chunk.parent_id in gone else piece for piece in result]


def _adopt(child: Piece, parents: Sequence[Piece]) -> Piece:
    """The child under the one of the new parents that contains its start, else the first."""
    inside = [p for p in parents if p.chunk.norm_start <= child.chunk.norm_start < p.chunk.norm_end]
    return replace(
        child, chunk=replace(child.chunk, parent_id=(inside or list(parents))[0].chunk.chunk_id)
    )


def _with_id(base: Base, piece: Piece, taken_ids: Collection[str]) -> Piece:
    """The piece with the first free id for its section and text; the version's own chunk if it
    equals that again.
    """
    chunk = piece.chunk
    if not chunk.chunk_text:
        return piece  # an image chunk's id comes from its image
    mark, nth = fingerprint_text(chunk.chunk_text, base.cleaning), 0
    while (chunk_id := chunk_name(chunk.section_id, mark, nth, chunk.chunk_type)) in taken_ids:
        nth += 1
    own = base.chunk(chunk_id)
    same = own is not None and not chunk.edited_from and {*own.asset_ids} == {*chunk.asset_ids}
    if (
        own is not None
        and same
        and (own.norm_start, own.norm_end) == (chunk.norm_start, chunk.norm_end)
    ):
        return replace(piece, chunk=replace(own, parent_id=chunk.parent_id), origins=(chunk_id,))
    return replace(piece, chunk=replace(chunk, chunk_id=chunk_id, chunk_fingerprint=mark))
