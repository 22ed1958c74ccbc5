# Every target sets up what it needs: a virtual environment in .venv and the package in it.
PYTHON ?= python3
BIN := .venv/bin
CORE := .venv/.core
SETUP := .venv/.setup

# three for two processors: for a sixth of its time a process waits for what it started
SUITE := $(BIN)/python -m pytest -n 3
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: setup lock demo test test-thorough perf test-extras static check conformance inspector bench ui reference docs golden format clean

setup: $(SETUP)

# Where a pinned version is not to be had (another platform, another Python), the bounds of pyproject.toml alone decide.
define install
@echo "Installing $(1) into .venv; the first time this takes a minute or two."
@$(INSTALL) --constraint constraints.txt --editable '$(1)' || \
    { echo "The versions in constraints.txt cannot all be installed here; taking others within the bounds of pyproject.toml." >&2; \
      $(INSTALL) --editable '$(1)'; }
@touch $@
endef

$(CORE): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(call install,.)

$(SETUP): $(CORE)
	$(call install,.[dev])

lock: setup                ## the newest versions within the bounds; writes constraints.txt and THIRD_PARTY_NOTICES.md
	$(INSTALL) --upgrade --upgrade-strategy eager --editable '.[dev]'
	$(BIN)/python tools/dependencies.py

# the library of this clone; in its folder `rag` finds it without the variable
demo ui: export RAG_HOME ?= $(CURDIR)/data

demo: $(CORE)              ## ingest the shipped samples, publish a release, ask three questions
	$(BIN)/rag demo
	@echo; echo "Next: '$(BIN)/rag trace show TRACE' explains an answer, '$(BIN)/rag serve' answers your assistant over MCP (README.md has the lines),"
	@echo "'$(BIN)/rag ui' shows the library in a browser, 'make ui' the lineage in Dagster."

test: setup                ## the test suite, without optional packages
	$(SUITE)

test-thorough: setup       ## the same with many more examples, lives, crash points and mutations; half an hour or more
	RAG_THOROUGH=1 $(SUITE)

perf: setup                ## the tests that measure processor time
	$(BIN)/python -m pytest -m perf

# torch alone first, so that its pinned version is what the models' packages find; only what the extras unlock runs again. The S3 server has
# an environment of its own: moto asks for an older python-dateutil than chromadb's kubernetes.
test-extras: setup         ## install the extras (models: torch), run the tests that they unlock
	$(INSTALL) "$$(sed -n 's/.*"\(torch==[^"]*\)".*/\1/p' pyproject.toml)"
	$(INSTALL) --editable '.[dev,models,hosts]'
	$(BIN)/python -m pytest -n 2 rag_platform_tests/providers rag_platform_tests/test_providers.py \
	    rag_platform_tests/test_providers_stages.py rag_platform_tests/test_configs.py rag_platform_tests/test_architecture.py \
	    rag_platform_tests/server/test_hosts.py
	$(PYTHON) -m venv .services
	.services/bin/python -m pip install --quiet --disable-pip-version-check 'moto[server]==5.2.5'
	RAG_TEST_MOTO=$(CURDIR)/.services/bin/moto_server $(BIN)/python -m pytest -n 2 \
	    rag_platform_tests/test_two_machines.py rag_platform_tests/releases/test_exchange.py

check: static test        ## format, lint, types, layers, definitions, then the tests

static: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file bench/mypy.ini
	$(BIN)/lint-imports
	$(BIN)/python -m rag_platform.assets.instance definitions validate

conformance: setup         ## the official conformance suite of MCP over HTTP; installs Node and the suite into .conformance
	$(BIN)/python tools/conformance.py

ui: setup                  ## Dagster: lineage, partitions, sensor, schedule, at http://127.0.0.1:3000
	$(BIN)/python -m rag_platform.assets.instance dev

inspector: setup           ## the official inspector's command line over both transports; installs Node and it into .conformance
	$(BIN)/python tools/inspector.py

bench: setup               ## ratios against the bare libraries, in one run each; about four minutes
	$(BIN)/python bench/ingest.py
	$(BIN)/python bench/query.py
	$(BIN)/python bench/serve.py

reference: setup           ## write docs/reference from the code
	$(BIN)/python tools/reference.py

docs: setup                ## the documentation as a site in build/site; fails for a broken link or anything fetched from elsewhere
	$(INSTALL) --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

golden: setup              ## write the reviewed contract and traces anew; prints what changed
	$(BIN)/python rag_platform_tests/server/test_contract.py
	RAG_WRITE_GOLDEN=1 $(BIN)/python -m pytest -q rag_platform_tests/observability/test_golden_traces.py
	git diff --stat -- rag_platform_tests

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:                     ## remove what setup made; data/ stays
	rm -rf .venv .conformance build *.egg-info
