"""A document RAG platform: files go in through Dagster, cited answers come out.

The map, in pipeline order:

    config, ir, protocols, registry, errors     words and contracts every other module shares
    store, ledger, jobs, observability          where bytes lie, what is known of them, who works on
                                                them, what happened
    loaders                                     bytes of one format        -> facts and blocks
    documents                                   facts -> sections -> chunks -> views
    indexes                                     chunks -> vectors, catalog, lexical and dense index,
                                                release
    retrieval                                   question -> candidates -> hits -> evidence -> cited
                                                answer
    evaluation                                  dataset x engine           -> metrics -> verdict
    assets, definitions                         the same steps as Dagster assets, jobs, sensors and
                                                schedules
    server, cli                                 doors for assistants and people

A module imports only what stands above it in this list; `pyproject.toml` holds the checked
contract.
"""

from rag_platform.telemetry import switch_off

# here, because every door and every child process imports the package before any engine
switch_off()
