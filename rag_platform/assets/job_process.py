"""`python -m rag_platform.assets.job_process JOB_ID`: the process of a job. The embedding models
start loading in child processes before Dagster is imported.
"""

import gc
import signal
import sys
from contextlib import closing, suppress

from rag_platform.config.settings import load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.errors import RagError
from rag_platform.indexes.embedding_pool import begin_pool, close_begun, parts
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Job
from rag_platform.processes.processors import usable_processors
from rag_platform.registry import traits
from rag_platform.workspace import DataRoot

# estimated embedding time from which the embedder is told to tune itself (`prepare`), which is
# nearly free during the imports
_LONG_SECONDS = 4.0
_SLOW_SECONDS = 1.0  # loading time from which an early process is worth its start
_MAX_VERSIONS = 500  # versions in the estimate; more would not change the decision


def main(job_id: str) -> int:
    """Carry the job out; returns the exit code of `run_job`."""
    gc.disable()  # it takes a fifth of the import time
    begin_embedding(job_id)
    try:
        from rag_platform.assets.launch import run_job

        gc.freeze()
        gc.enable()
        # as in Dagster's own processes, so that the run ends properly
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return run_job(job_id)
    finally:
        close_begun()
        gc.freeze()  # saves a final collection of 0.4 s at exit


def begin_embedding(job_id: str) -> None:
    """Start loading the embedders of a job with new documents, each in its own process. Errors (a
    broken config, a missing package) are ignored here, because the job meets and reports them too.
    """
    with suppress(RagError, OSError):
        settings = load_settings()
        root = DataRoot.open(settings)
        with closing(root.ledger) as ledger:
            job = ledger.job(job_id)
            size = _new_bytes(job, ledger)
            bound = ledger.namespaces().get(job.namespace)
        if not size or (settings.embedding_processes or usable_processors()) == 1:
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
    """Roughly how many bytes of text the job adds from documents without a live version. Updated
    documents do not count, because most of their texts have vectors already.
    """
    if job.kind not in ("ingest", "range") or job.args.get("ranges"):
        return 0
    versions = [
        ledger.version(version_id) for version_id in job.args["version_ids"][:_MAX_VERSIONS]
    ]
    return sum(
        version.text_bytes
        for version in versions
        if ledger.document(version.namespace, version.doc_id).live_version is None
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
