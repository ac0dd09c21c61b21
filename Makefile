# Every target sets up .venv by itself when it must and is quick when nothing changed. `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
SITE := build/site
COVERAGE := --cov --cov-report=term --cov-fail-under=100

# pyright's wrapper asks a registry for news at each start unless told not to; mkdocs-material advertises at each build.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export NO_MKDOCS_2_WARNING := 1
# Some machines tell Python to keep no bytecode. Here some 250 processes would compile the same tests each for itself.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test coverage lint format conformance docs bench chaos fuzz audit build constraints clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.dev ## .venv with everything for development

demo: $(VENV)/.runtime ## a task that outlives a kill -9, in under a minute
	@$(BIN)/perdure demo

# Tracing doubles what a test takes, and most of that is the SDK's code. So only those are traced that come by every
# branch: the rooms' own, and what migrates the databases of before.
TRACED := tests/domain tests/store tests/engine tests/ops/test_migrate.py
# Four on two cores: what waits for another program leaves room for who does not.
PYTEST := $(BIN)/pytest -n 4 --dist worksteal

test: $(VENV)/.dev ## the whole suite on four processes, demanding every branch of domain, store and engine
	@.ci/services
	@mkdir -p build/coverage
	$(if $(ARGS),$(PYTEST) $(ARGS),$(PYTEST) $(TRACED) $(COVERAGE))
	$(if $(ARGS),,$(PYTEST) $(TRACED:%=--ignore=%))

coverage: $(VENV)/.dev ## the branches of domain, store and engine, with a page per module in build/coverage/html
	@mkdir -p build/coverage
	$(PYTEST) $(TRACED) $(COVERAGE) --cov-report=html

lint: $(VENV)/.dev ## ruff, pyright, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.dev ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

conformance: $(VENV)/.dev ## the official MCP conformance suite, on examples/conformance_server.py, through the gateway, and on our client
	$(BIN)/python -m tests.conformance.run $(ARGS)

docs: $(VENV)/.dev ## the documentation, strictly, into build/site
	$(BIN)/python -m docs.make_state_machine
	$(BIN)/python -m docs.make_ownership
	$(BIN)/python -m docs.include
	$(BIN)/mkdocs build --quiet --strict --site-dir $(SITE)
	@echo "documentation: $(SITE)/index.html"

bench: $(VENV)/.dev ## stores and HTTP beside their baselines; waiting, timers, takeover, steps, wake-ups, listening, many handles, a hop, draining, purging
	$(BIN)/python -m bench.store $(ARGS)
	$(BIN)/python -m bench.store --store postgresql $(ARGS)
	$(BIN)/python -m bench.http $(ARGS)
	$(BIN)/python -m bench.parking $(ARGS)
	$(BIN)/python -m bench.timers $(ARGS)
	$(BIN)/python -m bench.takeover $(ARGS)
	$(BIN)/python -m bench.steps $(ARGS)
	$(BIN)/python -m bench.wakeups $(ARGS)
	$(BIN)/python -m bench.listen $(ARGS)
	$(BIN)/python -m bench.handles $(ARGS)
	$(BIN)/python -m bench.gateway $(ARGS)
	$(BIN)/python -m bench.drain $(ARGS)
	$(BIN)/python -m bench.purge $(ARGS)
	$(BIN)/python -m bench.purge --store postgresql $(ARGS)

# As root SQLite gets a small disk of its own, to be filled; gcc brings the clock steps and the bad fsyncs. PostgreSQL
# gets a private server, which is restarted, stopped and cut off as well. OF=gateway is a storm about two gateways before
# three backends, which needs redis-server too.
chaos: $(VENV)/.dev ## processes killed, stopped and cut off for 10 minutes, and an oracle; STORE=postgresql ARGS="--minutes 1 --faults 20 --seed N"
	$(BIN)/python -m $(if $(filter gateway,$(OF)),chaos.gateway,chaos --store $(or $(STORE),sqlite)) $(ARGS)

fuzz: $(VENV)/.dev ## requests and files that are wrong in every way, for 10 minutes, and an oracle; ARGS="--minutes 1 --seed N --target files"
	$(BIN)/python -m fuzz $(ARGS)

# Not a part of CI: it asks a database of vulnerabilities on the net, which a build must not depend on. That is the JSON
# API of pypi.org, which mirrors of the index seldom have; ARGS="-s osv" asks api.osv.dev. A version that nobody can say
# anything about fails the audit too, but only at its end: `--strict` would stop at the first, and show none of the rest.
audit: build/audit/bin/pip-audit ## known vulnerabilities of the pinned versions, by pip-audit; needs the net
	@rm -f build/audit/found; status=0; \
	build/audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --output build/audit/found $(ARGS) \
	  || status=$$?; \
	if [ -f build/audit/found ]; then cat build/audit/found; fi; \
	if grep -q 'Skip Reason' build/audit/found 2>/dev/null; then \
	  echo "Not all could be looked up: ask another database (make audit ARGS=\"-s osv\")" >&2; status=1; fi; \
	exit $$status

build/audit/bin/pip-audit: | $(BIN)/python
	@mkdir -p build
	$(PYTHON) -m venv --clear build/audit
	build/audit/bin/python -m pip install --quiet --disable-pip-version-check 'pip-audit>=2.9,<3'

build: $(VENV)/.dev ## wheel and sdist into build/dist, looked into
	rm -rf build/dist
	$(BIN)/python -m build --no-isolation --outdir build/dist
	$(BIN)/python -m tests.packages build/dist

constraints: ## resolve the newest allowed versions and pin them in constraints.txt
	@mkdir -p build
	$(PYTHON) -m venv --clear build/resolve
	build/resolve/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	{ sed -n '/^#/p' constraints.txt; \
	  build/resolve/bin/python -m pip list --format=freeze --exclude pip --exclude setuptools --exclude perdure | sort -f; \
	} > build/constraints.txt
	mv build/constraints.txt constraints.txt
	rm -rf build/resolve

clean: ## remove .venv and everything that was built or cached
	rm -rf $(VENV) build .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests examples bench chaos fuzz docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Stamps: the interpreter; what runs perdure; what develops it. The development stamp fulfils the runtime one.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"perdure needs Python 3.11 or newer, and $(PYTHON) is {v.major}.{v.minor}: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[dev]'
	@touch $(VENV)/.runtime $@
