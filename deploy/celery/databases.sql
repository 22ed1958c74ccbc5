-- `rag`, for the ledger, is there already; both have a table `jobs`, so Dagster's runs stand apart
CREATE DATABASE dagster OWNER rag;
