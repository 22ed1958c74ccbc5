"""The stored artifacts of a case result, and the proof of its citations."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from rag_platform.config.settings import Strategy
from rag_platform.documents.provenance import verify_version
from rag_platform.errors import RagError
from rag_platform.evaluation.cases import EvalCase
from rag_platform.ir import Candidate, Chunk, Citation, Hit, Json, QueryResult
from rag_platform.retrieval.library import Lease, Library
from rag_platform.retrieval.search_context import Artifacts
from rag_platform.text.scripts import is_wide


def artifacts_data(result: QueryResult, made: Artifacts, top_k: int) -> Json:
    """How a result came about, as ids and figures without document text, so that deletions need not
    touch it: of an answer only its hash, of warnings (which are in the trace) their number.
    """
    return {
        "retrieved": _rank(result.hits, top_k),
        "before_fusion": {"dense": _rank(made.dense, top_k), "sparse": _rank(made.sparse, top_k)},
        "after_fusion": _rank(made.fused, top_k),
        "after_rerank": _rank(made.reranked, top_k),
        "context_chunks": [hit.chunk_id for hit in made.context],
        "answered": result.answered,
        "answer_sha256": hashlib.sha256(result.answer_markdown.encode()).hexdigest()
        if result.answer_markdown
        else "",
        "confidence": result.confidence,
        "citations": [citation.chunk_id for citation in result.citations],
        "asset_ids": sorted({asset for hit in result.hits for asset in hit.asset_ids}),
        "latency_ms": made.latency_ms,
        "effective_mode": result.effective_mode,
        "flags": sorted(name for name, value in result.flags.items() if value is True),
        "warnings": len(result.warnings),
        "usage": result.usage,
    }


def _rank(found: Sequence[Candidate] | Sequence[Hit], top_k: int) -> list[Json]:
    return [
        {"chunk_id": item.chunk_id, "score": round(item.score, 6), "source": item.source}
        for item in found[:top_k]
    ]


def case_groups(case: EvalCase) -> dict[str, list[str]]:
    """The groups of a case: its tags, the script of its question, and the suffixes of the expected
    files.
    """
    files = (
        *case.expected_files,
        *(expected.file for expected in case.expected_text),
        *case.relevance_doc,
    )
    suffixes = {PurePosixPath(name).suffix.lower().lstrip(".") for name in files}
    return {
        "tag": list(case.tags),
        "language": ["zh" if is_wide(case.query) else "en"],
        "file_type": sorted(suffixes - {""}),
    }


class CitationProof:
    """Proves cited chunks as `rag verify` does, each once per run."""

    def __init__(self, library: Library, lease: Lease) -> None:
        self._library, self._lease = library, lease
        self._manifest = lease.release.manifest
        self._strategy = Strategy.model_validate(self._manifest.strategy_config)
        self._texts: dict[str, str | None] = {}  # of the checked chunks; None: not proved

    def find_proved(self, citations: Iterable[Citation]) -> frozenset[str]:
        """The cited chunks that the stored bytes prove and whose citation has the same text."""
        cited = list(citations)
        self._prove({citation.chunk_id for citation in cited} - self._texts.keys())
        return frozenset(
            citation.chunk_id
            for citation in cited
            if (text := self._texts.get(citation.chunk_id)) is not None
            and (text in citation.text or citation.text in text)
        )

    def _prove(self, chunk_ids: set[str]) -> None:
        self._texts |= dict.fromkeys(chunk_ids)
        by_version: dict[str, list[Chunk]] = defaultdict(list)
        for chunk in self._lease.release.catalog.chunks(chunk_ids).values():
            by_version[chunk.version_id].append(chunk)
        for version_id, chunks in by_version.items():
            failed = self._find_failed(version_id, chunks)
            self._texts |= {
                chunk.chunk_id: chunk.chunk_text for chunk in chunks if chunk.chunk_id not in failed
            }

    def _find_failed(self, version_id: str, chunks: Sequence[Chunk]) -> set[str]:
        version = self._lease.release.catalog.version(version_id)
        if version is None:
            return {chunk.chunk_id for chunk in chunks}
        try:
            failures = verify_version(
                self._library.store,
                version,
                self._manifest.profiles,
                chunks,
                self._library.settings.limits,
                self._strategy,
            )
        except (RagError, OSError, ValueError):  # stored files are damaged: nothing is proved
            return {chunk.chunk_id for chunk in chunks}
        return {failure.chunk_id for failure in failures}
