"""The interfaces of providers. `registry.PROVIDERS` lists the shipped ones.

Every provider class has a `VERSION`, which is part of the profiles of its outputs and changes
whenever those would. Its `traits` say how the platform may use it; a class without them has the
defaults (`registry.traits_of`). Providers raise the errors of `rag_platform.errors`: ProviderError
for any failure of an engine or a model; any other exception is logged as a bug.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from rag_platform.ir import Candidate, EmbedderInfo, Facts, Hit, Json, LexicalRow, QueryIR, Section
from rag_platform.traits import Traits

if TYPE_CHECKING:  # not imported at run time, so that commands without vectors start fast
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]
else:
    Vectors = Any


@dataclass(frozen=True, slots=True)
class Picture:
    """Image bytes sent along with a message."""

    data: bytes
    mime: str


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation with a language model."""

    role: str  # system | user | assistant
    text: str
    pictures: tuple[Picture, ...] = ()
    prompt: str = ""  # profile id of the prompt file that it was made from


@dataclass(frozen=True, slots=True)
class Completion:
    """A language model's answer, with usage and timing of the call."""

    text: str
    provider: str
    model: str
    model_version: str = ""
    mode: str = "online"  # online | offline
    # input_tokens, output_tokens, as counted by the endpoint
    usage: Json = field(default_factory=dict)
    cost: float | None = None  # in the currency of the configured prices, None without prices
    retries: int = 0
    seconds: float = 0.0
    finish: str = ""  # stop | length: why the model stopped, if the endpoint says


@dataclass(frozen=True, slots=True)
class Written:
    """An answerer's output; empty text means that the evidence has no answer."""

    text: str
    completion: Completion | None = None
    warnings: tuple[str, ...] = ()
    prompt_profile_id: str = ""


class Loader(Protocol):
    """Extracts facts from the bytes of one format.

    A loader whose blocks have neither bytes nor pages also has `verify_blocks(path, text, blocks)
    -> dict[ordinal, reason]`, which reads the file again at each block's locator and returns the
    blocks that it cannot prove.
    """

    VERSION: ClassVar[str]
    traits: ClassVar[Traits]

    def claims(self, filename: str, head: bytes) -> bool:
        """True if this loader reads such a file; `head` has its first 4096 bytes."""
        ...

    def load(self, path: Path, filename: str) -> Facts:
        """The facts of the stored file. Raises DocumentError with the reason if there are none."""
        ...


class Sectioner(Protocol):
    """Splits a text into sections."""

    VERSION: ClassVar[str]

    def sections(
        self, text: str, headings: Sequence[tuple[int, int, str]], doc_id: str
    ) -> list[Section]:
        """Sections covering `text` in order; `headings` are (offset, level, title) in normalised
        coordinates.
        """
        ...


class Chunker(Protocol):
    """Splits one section into spans.

    An option `max_tokens` is lowered to the embedder's window. Options `embedder` and
    `embedder_options` are set to the strategy's embedder if they are empty; a static method
    `needs_embedder(options) -> bool` says whether the chunks depend on it. A chunker with two
    levels also has `families(text) -> [(parent span or None, spans of its children)]`, whose
    children are the spans.
    """

    VERSION: ClassVar[str]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Half-open spans of `text` in order, trimmed, each within the size limit, none blank."""
        ...


class Embedder(Protocol):
    """Turns texts into unit vectors of one space.

    Optional methods: `count_tokens(texts) -> list[int]`, without prefixes and special tokens, and
    `count_question_tokens` if questions have another tokenizer. `load() -> None` (for providers of
    any kind) loads files and imports, and is called before the time of a question starts. With an
    option `cache_folder` the provider gets a folder for files, and its `prepare() -> None`, if it
    has one, is called before work of a minute or more.
    """

    VERSION: ClassVar[str]
    traits: ClassVar[Traits]

    def info(self) -> EmbedderInfo:
        """The fingerprint, known without loading weights."""
        ...

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """float32 [len(texts), dim], rows of length 1. Raises ProviderError with the position of a
        bad text.
        """
        ...


class DenseReader(Protocol):
    """An open nearest-neighbour index."""

    def search(self, vector: Vectors, k: int) -> list[Candidate]:
        """At most k candidates, best first, scored by cosine similarity."""
        ...

    def count(self) -> int:
        """The number of vectors."""
        ...

    def ids(self) -> set[str]:
        """All chunk ids."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...


class DenseIndex(Protocol):
    """An approximate nearest-neighbour engine, whose directory is written once.

    Releases share the files by hard links, so readers must not write them.
    """

    VERSION: ClassVar[str]
    traits: ClassVar[Traits]

    def build(self, directory: Path, *, ids: Sequence[str], vectors: Vectors) -> None:
        """Write an index of the vectors [len(ids), dim] into a new directory."""
        ...

    def open(self, directory: Path) -> DenseReader:
        """A reader of a finished, immutable directory."""
        ...


class LexicalReader(Protocol):
    """An open lexical index."""

    def search(
        self,
        query: str,
        k: int,
        *,
        expansions: Sequence[tuple[str, float]] = (),
        phrases: Sequence[str] = (),
        chunk_ids: Collection[str] | None = None,
    ) -> list[Candidate]:
        """At most k candidates, best first, with BM25 scores above 0, among `chunk_ids` if given.

        Expansions are additional texts with the weight of their words; the question's own weigh 1.
        Texts that contain a phrase verbatim rank above texts that only contain its words; the words
        of phrases are also in the question.
        """
        ...

    def full_match_score(self, query: str) -> float:
        """The score of a text of average length that contains every word of the question once,
        without its headings; 0 for a question without words.
        """
        ...

    def doc_freq(self, words: str, doc_ids: Collection[str] | None = None) -> int:
        """The number of chunks, of all or of the given documents, whose text without headings
        contains all of these words.
        """
        ...

    def terms_with_prefix(self, beginning: str) -> list[tuple[str, int]]:
        """(word, number of chunks) for the words and identifiers with this prefix, in lower case
        and without accents; empty if the index does not support it.
        """
        ...

    def count(self) -> int:
        """The number of chunks."""
        ...

    def ids(self, among: Collection[str] | None = None) -> set[str]:
        """All chunk ids, or those of the given ones that are in the index."""
        ...


class LexicalIndex(Protocol):
    """A lexical index in one directory.

    Releases share files by hard links: before `update` every file is copied, unless
    `traits.replaces_files`, and readers must not write any.
    """

    VERSION: ClassVar[str]
    traits: ClassVar[Traits]

    def update(
        self, directory: Path, *, removed: Mapping[str, str], rows: Iterable[LexicalRow]
    ) -> None:
        """Delete `removed` (chunk id: doc id), then add `rows`; creates the index if the directory
        is empty. Afterwards hits and scores equal those of an index built from scratch.
        """
        ...

    def open(self, directory: Path) -> LexicalReader:
        """A reader of a finished, immutable directory."""
        ...


class Fusion(Protocol):
    """Merges the candidates of two retrievers into one ranking."""

    VERSION: ClassVar[str]

    def fuse(
        self,
        dense: Sequence[Candidate],
        sparse: Sequence[Candidate],
        *,
        trust: float = 1.0,
        whole: bool = False,
    ) -> list[Candidate]:
        """Every candidate once, best first; ties by best previous rank, then chunk_id. `trust` is a
        factor on the weight of the sparse retriever; `whole` says that `sparse` has every text with
        a word of the question.
        """
        ...


class Reranker(Protocol):
    """Scores hits; retrieval.reranking sorts them by it."""

    VERSION: ClassVar[str]
    traits: ClassVar[Traits]

    def score(self, query: QueryIR, hits: Sequence[Hit]) -> list[float]:
        """One finite number per hit, higher is better; only comparable within one call. Raises
        ProviderError.
        """
        ...


class Answerer(Protocol):
    """Writes an answer from evidence."""

    VERSION: ClassVar[str]
    traits: ClassVar[Traits]

    def answer(
        self,
        query: QueryIR,
        evidence: Sequence[Hit],
        *,
        on_text: Callable[[str], None] | None = None,
    ) -> Written:
        """Markdown whose [n] marks cite evidence[n-1]; empty text if the evidence has no answer.

        `on_text` receives the parts of the text as they are written; an exception from it aborts
        and propagates.
        """
        ...


class Ocr(Protocol):
    """Reads the text printed in an image."""

    VERSION: ClassVar[str]
    traits: ClassVar[Traits]

    def read(self, image: bytes) -> tuple[str, float | None]:
        """(text in reading order with one line per printed line, mean confidence 0 to 1). Raises
        ProviderError if the image cannot be read.
        """
        ...


class LLM(Protocol):
    """A language model behind an endpoint."""

    def generate(
        self,
        messages: Sequence[Message],
        *,
        mode: str = "online",
        max_tokens: int | None = None,
        json_schema: Json | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """The completion; with a schema its text is JSON, which the caller must validate. Raises
        ProviderError with a structured code.

        With `on_text` the answer is streamed to it part by part; an exception from it closes the
        stream and propagates. A stream that breaks after its first part is not retried; the error
        has the received text in `details["text"]`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Blob:
    """An object of an object store."""

    key: str
    size: int
    modified: datetime


class Blobs(Protocol):
    """An object store shared by machines. Its methods raise ProviderError on failure.

    Objects never change, except pointers, which are replaced by compare-and-swap.
    """

    VERSION: ClassVar[str]
    traits: ClassVar[Traits]

    def put_new(self, key: str, path: Path) -> bool:
        """Store a file under a new key; False, without a change, if the key exists."""
        ...

    def get(self, key: str, path: Path) -> None:
        """Download an object to a file. Raises NotFoundError `no_blob`."""
        ...

    def list(self, prefix: str) -> Iterator[Blob]:
        """The objects with this key prefix, which ends with `/`."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; missing ones are ignored."""
        ...

    def has(self, key: str) -> bool:
        """True if the object exists."""
        ...

    def keeps_versions(self, key: str) -> bool:
        """True if the store keeps earlier versions of objects, detected on this one."""
        ...

    def remove_versions(self, prefix: str, *, plan: bool = False) -> int | None:
        """Remove the kept versions of deleted objects with this prefix, or with `plan` count them;
        None if the store does not support that.
        """
        ...

    def read_pointer(self, key: str, known: str = "") -> tuple[bytes, str] | None:
        """(content, tag) of a pointer, both empty if there is none; None if its tag is still
        `known`.
        """
        ...

    def swap_pointer(self, key: str, data: bytes, expected: str) -> bool:
        """Replace a pointer if its tag is still `expected` (empty: if there is none);
        True if so.
        """
        ...
