"""A document RAG platform: files go in through Dagster, cited answers come out.

The map, in pipeline order:

    config, ir, protocols, registry, errors     settings, records and interfaces shared by all
    storage, ledger, processes, observability   files, metadata, jobs, traces and logs
    loaders                                     bytes of one format        -> facts and blocks
    documents                                   facts -> sections -> chunks -> views
    indexes                                     chunks -> vectors, catalog, lexical and dense index,
                                                release
    retrieval                                   question -> candidates -> hits -> evidence -> cited
                                                answer
    evaluation                                  dataset x engine           -> metrics -> verdict
    assets, definitions                         the same steps as Dagster assets, jobs, sensors and
                                                schedules
    server, web, cli                            MCP for assistants, pages and commands for people

A module imports only those above it in this list; the contract in `pyproject.toml` is checked.
"""

from rag_platform.telemetry import switch_off

# here, because every process imports this package before any engine
switch_off()
