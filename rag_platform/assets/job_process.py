"""`python -m rag_platform.assets.job_process JOB_ID`: the process of a job. What it will embed with
begins to load before Dagster is imported.
"""

import gc
import signal
import sys

from rag_platform.indexes.embedding_pool import close_begun
from rag_platform.ingestion.head_start import begin_embedding


def main(job_id: str) -> int:
    """Carry the job out; returns the exit code of `run_job`."""
    gc.disable()  # a fifth of the time of the imports went into it
    begin_embedding(job_id)
    try:
        from rag_platform.assets.launch import run_job

        gc.freeze()
        gc.enable()
        # as Dagster's own processes: the run ends properly
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return run_job(job_id)
    finally:
        close_begun()
        gc.freeze()  # else the interpreter looks through all of it when it ends, for 0.4 s


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
