"""Lets the models that a job will embed with load in child processes, before the job's own process
has imported all that it needs, which takes seconds.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress

from rag_platform.config.settings import load_settings, load_strategy
from rag_platform.errors import RagError
from rag_platform.indexes.embedding_pool import begin_pool, parts
from rag_platform.ingestion.text_sizes import text_bytes
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Job
from rag_platform.registry import traits
from rag_platform.workspace import DataRoot

# of embedding, from which on the embedder looks for its best way: beside the imports that costs
# nearly nothing
_LONG_SECONDS = 4.0
_SLOW_SECONDS = 1.0  # of loading, from which on a process ahead is worth its start
_LOOKED_AT = 500  # versions; what the others bring on top changes nothing


def begin_embedding(job_id: str) -> None:
    """Begin to load the embedders of a job that brings new documents, a process for each.

    What stands in the way (a config that is broken, a package that is missing) is left to the job,
    which meets it too and says so.
    """
    with suppress(RagError, OSError):
        settings = load_settings()
        root = DataRoot.open(settings)
        with closing(root.ledger) as ledger:
            job = ledger.job(job_id)
            size = _new_bytes(job, ledger)
            bound = ledger.namespaces().get(job.namespace)
        if not size or (settings.embedding_processes or os.cpu_count() or 1) == 1:
            return
        strategy = load_strategy(settings, bound, ingestion=True)
        if not strategy.builds_dense:
            return
        pool = begin_pool(strategy.embedding, root.store.embeddings_path.parent)
        for part in parts(strategy.embedding):
            known = traits("embedder", part.provider)
            if known.load_seconds >= _SLOW_SECONDS and not known.remote:
                pool.of(part).begin(prepare=size / known.bytes_per_second >= _LONG_SECONDS)


def _new_bytes(job: Job, ledger: Ledger) -> int:
    """About how many bytes of text the documents bring of which nothing is live yet: most of what
    an edit leaves has its vectors.
    """
    if job.kind not in ("ingest", "range") or job.args.get("ranges"):
        return 0
    versions = [ledger.version(version_id) for version_id in job.args["version_ids"][:_LOOKED_AT]]
    return sum(
        text_bytes(version)
        for version in versions
        if ledger.document(version.namespace, version.doc_id).live_version is None
    )
