"""The two partition definitions: document versions for ingestion, namespaces for releases."""

from collections.abc import Sequence

import dagster as dg

document_versions = dg.DynamicPartitionsDefinition(name="document_versions")
namespaces = dg.DynamicPartitionsDefinition(name="namespaces")

# Tags of runs: the job of the ledger that started the run, or tells of it, and the one namespace that it works for.
JOB_TAG = "rag/job_id"
NAMESPACE_TAG = "rag/namespace"
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


def contiguous(keys: Sequence[str], wanted: set[str]) -> list[tuple[str, str]]:
    """(first, last) of each unbroken run of wanted keys, in the order of `keys`.

    >>> contiguous(["a", "b", "c", "d"], {"a", "b", "d"})
    [('a', 'b'), ('d', 'd')]
    """
    ranges: list[tuple[str, str]] = []
    open_range = False
    for key in keys:
        if key in wanted:
            ranges[-1:] = [(ranges[-1][0], key)] if open_range else [*ranges[-1:], (key, key)]
        open_range = key in wanted
    return ranges
