"""The two partition definitions: document versions for ingestion, namespaces for releases."""

import dagster as dg

document_versions = dg.DynamicPartitionsDefinition(name="document_versions")
namespaces = dg.DynamicPartitionsDefinition(name="namespaces")

# Tag of runs that a job of the ledger started; sensors leave those alone.
JOB_TAG = "rag/job_id"
