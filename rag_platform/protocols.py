"""What a provider must do: one or two methods each. `registry.PROVIDERS` names the ones that ship.

Every provider's class has a `VERSION`, part of the profiles of what it makes: it changes whenever
that would. How the platform may use it is in its `traits`; a class without them has the defaults
(`registry.traits_of`). Providers raise the errors of `rag_platform.errors`: ProviderError where an
engine or a model fails, whatever that one raises; everything else is logged as a bug.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from rag_platform.ir import Candidate, EmbedderInfo, Facts, Hit, Json, LexicalRow, QueryIR, Section
from rag_platform.traits import Traits

if TYPE_CHECKING:  # a door that only reads lists starts without numpy
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
    prompt: str = ""  # profile id of the prompt file that it was made of


@dataclass(frozen=True, slots=True)
class Completion:
    """What a language model answered, and what the call took."""

    text: str
    provider: str
    model: str
    model_version: str = ""
    mode: str = "online"  # online | offline
    # input_tokens, output_tokens, as the endpoint counts them
    usage: Json = field(default_factory=dict)
    cost: float | None = None  # in the currency of the configured prices, None without prices
    retries: int = 0
    seconds: float = 0.0
    finish: str = ""  # stop | length: why the model ended, as far as the endpoint says


@dataclass(frozen=True, slots=True)
class Written:
    """What an answerer wrote; empty text says that the evidence holds no answer."""

    text: str
    completion: Completion | None = None
    warnings: tuple[str, ...] = ()
    prompt_profile_id: str = ""


class Loader(Protocol):
    """Turns the bytes of one format into facts.

    A loader whose blocks have neither bytes nor pages has `verify_blocks(path, text, blocks) ->
    dict[ordinal, reason]`, which reads the file again at each block's locator and names the blocks
    it does not prove.
    """

    VERSION: ClassVar[str]
    traits: ClassVar[Traits]

    def claims(self, filename: str, head: bytes) -> bool:
        """True when this loader reads such a file; `head` holds its first 4096 bytes."""
        ...

    def load(self, path: Path, filename: str) -> Facts:
        """The facts of the stored file. Raises DocumentError with a reason when there are none."""
        ...


class Sectioner(Protocol):
    """Decides structural boundaries."""

    VERSION: ClassVar[str]

    def sections(
        self, text: str, headings: Sequence[tuple[int, int, str]], doc_id: str
    ) -> list[Section]:
        """Sections covering `text` in order; `headings` are (offset, level, title) in normalised
        coordinates.
        """
        ...


class Chunker(Protocol):
    """Cuts one section into spans.

    An option `max_tokens` is lowered to the embedder's window; options `embedder` and
    `embedder_options` are filled with the strategy's embedder where they are empty, and
    `needs_embedder(options) -> bool`, a static method, says when the chunks depend on it. A chunker
    of two levels has `families(text) -> [(parent span or None, spans of its children)]` besides,
    whose children are its spans.
    """

    VERSION: ClassVar[str]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Half-open spans of `text` in order, each within the chunker's size, none blank."""
        ...


class Embedder(Protocol):
    """Turns texts into unit vectors of one space.

    One that can count tokens has `count_tokens(texts) -> list[int]`, without prefixes and marks,
    and `count_question_tokens` where another tokenizer cuts questions. A provider of any kind whose
    first call would wait for files or imports has `load() -> None`: it is called before the time of
    a question begins to count. One with an option `cache_folder` is given a folder to keep files
    in, and its `prepare() -> None`, where it has one, is called before a minute of work or more.
    """

    VERSION: ClassVar[str]
    traits: ClassVar[Traits]

    def info(self) -> EmbedderInfo:
        """The fingerprint, known without loading weights."""
        ...

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """float32 [len(texts), dim], rows of length 1. Raises ProviderError naming the position of
        a bad text.
        """
        ...


class DenseReader(Protocol):
    """An opened nearest-neighbour index."""

    def search(self, vector: Vectors, k: int) -> list[Candidate]:
        """At most k candidates, best first, scores are cosine similarity."""
        ...

    def count(self) -> int:
        """Number of vectors held."""
        ...

    def ids(self) -> set[str]:
        """Every chunk id held."""
        ...

    def close(self) -> None:
        """Let go of the files."""
        ...


class DenseIndex(Protocol):
    """An approximate nearest-neighbour engine: its directory is written once.

    Releases share the files by hard links, so whoever reads them must not write them.
    """

    VERSION: ClassVar[str]
    traits: ClassVar[Traits]

    def build(self, directory: Path, *, ids: Sequence[str], vectors: Vectors) -> None:
        """Write the index of these rows [len(ids), dim] into a new directory."""
        ...

    def open(self, directory: Path) -> DenseReader:
        """A reader of a finished, immutable directory."""
        ...


class LexicalReader(Protocol):
    """An opened word index."""

    def search(
        self,
        query: str,
        k: int,
        *,
        expansions: Sequence[tuple[str, float]] = (),
        phrases: Sequence[str] = (),
        chunk_ids: Collection[str] | None = None,
        doc_ids: Collection[str] | None = None,
    ) -> list[Candidate]:
        """At most k candidates, best first, BM25 scores above 0; the id sets restrict what may
        match.

        Expansions are further texts with the weight of their words, the question's own weighing 1.
        What holds a phrase word by word comes above what holds its words in another way; the words
        of a phrase stand in the question, too.
        """
        ...

    def full_match_score(self, query: str) -> float:
        """What a text of average length scores that holds every word of the question once, its
        headings apart; 0 without words.
        """
        ...

    def doc_freq(self, words: str, doc_ids: Collection[str] | None = None) -> int:
        """How many chunks hold all of these words in their text, headings apart; those of some
        documents alone where they are given.
        """
        ...

    def terms_with_prefix(self, beginning: str) -> list[tuple[str, int]]:
        """The words and identifiers of texts and headings that begin so, whole, in lower case and
        without accents, and how many chunks hold each; none of an index that cannot tell.
        """
        ...

    def count(self) -> int:
        """Number of chunks held."""
        ...

    def ids(self, among: Collection[str] | None = None) -> set[str]:
        """Every chunk id held, or those of the given ones that are."""
        ...


class LexicalIndex(Protocol):
    """A word index over one directory.

    Releases share files by hard links: before `update` every file is given bytes of its own, unless
    `traits.replaces_files`, and readers must not write any.
    """

    VERSION: ClassVar[str]
    traits: ClassVar[Traits]

    def update(
        self, directory: Path, *, removed: Mapping[str, str], rows: Iterable[LexicalRow]
    ) -> None:
        """Delete `removed` (chunk id: doc id), then add `rows`; creates the index when the
        directory is empty.

        Afterwards every question has the hits and scores of an index that was built of the same
        rows from nothing.
        """
        ...

    def open(self, directory: Path) -> LexicalReader:
        """A reader of a finished, immutable directory."""
        ...


class Fusion(Protocol):
    """Joins the candidates of two retrievers into one order."""

    VERSION: ClassVar[str]

    def fuse(
        self,
        dense: Sequence[Candidate],
        sparse: Sequence[Candidate],
        *,
        trust: float = 1.0,
        whole: bool = False,
    ) -> list[Candidate]:
        """Every candidate once, best first; ties by best former rank, then chunk_id. `trust`
        multiplies the weight of the sparse retriever; that is `whole` where it holds every text
        with a word of the question.
        """
        ...


class Reranker(Protocol):
    """Judges joined hits; retrieval.reranking makes an order of its scores."""

    VERSION: ClassVar[str]
    traits: ClassVar[Traits]

    def score(self, query: QueryIR, hits: Sequence[Hit]) -> list[float]:
        """One finite number a hit, the higher the better; only their order within one call must
        mean something. Raises ProviderError.
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
        """Markdown whose [n] marks point at evidence[n-1]; empty text when the evidence holds no
        answer.

        `on_text` is given the parts of the text as they come; whatever it raises stops the writing
        and is raised.
        """
        ...


class Ocr(Protocol):
    """Reads the text printed in an image."""

    VERSION: ClassVar[str]
    traits: ClassVar[Traits]

    def read(self, image: bytes) -> tuple[str, float | None]:
        """(text, one printed line a line, in reading order; mean confidence 0 to 1). Raises
        ProviderError when the image cannot be read.
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
        """The completion; with a schema its text is JSON, which the caller still checks. Raises
        ProviderError with a structured code.

        With `on_text` the answer is streamed: each part is handed over as it comes, and whatever
        `on_text` raises closes the stream and is raised. A stream that breaks after its first part
        is not asked again; the error has what came in `details["text"]`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Blob:
    """An object of an object store."""

    key: str
    size: int
    modified: datetime


class Blobs(Protocol):
    """A store of objects that machines share. Its methods raise ProviderError where it fails.

    What lies under a key never changes, but for pointers, which are only replaced over what the
    writer saw there before.
    """

    VERSION: ClassVar[str]
    traits: ClassVar[Traits]

    def put_new(self, key: str, path: Path) -> bool:
        """Store a file under a key; False where something has that key already, which stays."""
        ...

    def get(self, key: str, path: Path) -> None:
        """Write an object into a file. Raises NotFoundError `no_blob`."""
        ...

    def list(self, prefix: str) -> Iterator[Blob]:
        """The objects whose keys begin with the prefix, which ends with `/`."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; those that are gone already are no error."""
        ...

    def has(self, key: str) -> bool:
        """True where there is such an object."""
        ...

    def keeps_versions(self, key: str) -> bool:
        """True where the store keeps what an object was before, told by this one."""
        ...

    def remove_versions(self, prefix: str, *, plan: bool = False) -> int | None:
        """Remove what the store keeps of objects below the prefix that are gone, or with `plan`
        count it; None where it cannot be asked for that.
        """
        ...

    def read_pointer(self, key: str, known: str = "") -> tuple[bytes, str] | None:
        """(content, tag) of a pointer, both empty where there is none; None while its tag is the
        `known` one.
        """
        ...

    def swap_pointer(self, key: str, data: bytes, expected: str) -> bool:
        """Replace a pointer, if its tag still is the `expected` one; empty where there was none."""
        ...
