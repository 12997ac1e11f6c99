# make demo    everything from nothing: set-up, data, a cluster, three queries (BACKEND=etcd keeps its state in etcd)
# make test    set-up with what tests need, then format, lint, types and imports, then every test
# make cluster a highly available cluster on this machine: etcd, schedulers, HAProxy, executors (ARGS=--tls)
# make check   the fast gate: format, lint, types, imports, unit and property tests
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON := .venv/bin/python
unexport PYTHONPATH
# Processes of Python start in half the time when compiled modules are kept.
unexport PYTHONDONTWRITEBYTECODE

# The Java that set-up found is known only once set-up has run.
with_java = JAVA_HOME="$${JAVA_HOME:-$$(cat .venv/java-home)}"

.PHONY: docs machines help setup setup-dev demo cluster test test-all test-compose test-deploy test-etcd simulate chaos chaos-programs lint check format reference protocol page pictures bench figures clean

help:
	@grep -E '^# make' Makefile | sed 's/^# //'
	@echo "make format  let ruff format and fix"
	@echo "make bench   TPC-H against plain Spark (SF=0.1, FORCED=1 cuts every exchange)"
	@echo "make figures   all benchmarks that README and docs/performance.md quote, about an hour (ARGS=--list)"
	@echo "make simulate   whole clusters in virtual time, with faults (SEEDS=2000, FROM=1 for these very seeds)"
	@echo "make machines   three machines as namespaces of this one, cut off, stopped, gone (ONLY=TEXT: these faults)"
	@echo "make chaos   real processes that are killed, paused and cut off under load (MINUTES=5, SEED=1, ROLLING=1, STREAMING=1, FROM_VERSION=DIRECTORY)"
	@echo "make chaos-programs   programs of PySpark under which everything is killed (KILLS=200, SEED=1, BACKEND=leveldb or etcd, DAYS=2 moves the clock)"
	@echo "make test-all   every test with every case, and TPC-H distributed, and in a Spark cluster, in every way"
	@echo "make test-compose   docker-compose.yml with a real engine: built, used, killed; needs docker.io and docker-compose"
	@echo "make test-etcd   the tests of the store on the newest etcd; needs Go"
	@echo "make test-deploy   the local cluster, and what docker-compose and kubectl make of their files"
	@echo "make reference   docs/reference, alert rules, the dashboard, from the code; figures in the pages, from docs/figures.json"
	@echo "make docs   the documentation as a site that one can search, in var/site"
	@echo "make page   scheduler/http/static, from page/; needs Node 20 and npm"
	@echo "make pictures   the pictures of the page in docs/pictures, with Spark and Chromium"
	@echo "make setup | protocol | clean"

setup:
	@scripts/setup bench

setup-dev:
	@scripts/setup dev

demo: setup
	@$(with_java) $(PYTHON) -m benchmarks.demo $(if $(BACKEND),--backend '$(BACKEND)')

cluster: setup-dev
	@$(with_java) exec $(PYTHON) -m deploy.local_cluster $(ARGS)

test: lint
	$(with_java) scripts/test

test-all: lint
	$(with_java) ONAGER_TESTS=all scripts/test

test-deploy: setup-dev
	$(with_java) $(PYTHON) -m pytest deploy

test-compose: setup-dev
	$(PYTHON) -m deploy.try_compose

test-etcd: setup-dev
	$(with_java) scripts/test-etcd

SEEDS ?= 2000
simulate: setup-dev
	$(PYTHON) -m tests.simulation --seeds $(SEEDS) $(if $(FROM),--from $(FROM))

machines: setup-dev
	$(with_java) $(PYTHON) -m tests.machines $(if $(ONLY),--only '$(ONLY)') --json var/machines.json

MINUTES ?= 5
chaos: setup-dev
	$(with_java) $(PYTHON) -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(ROLLING),--rolling) $(if $(STREAMING),--streaming) $(if $(FROM_VERSION),--from-version $(FROM_VERSION)) --json var/chaos.json

KILLS ?= 200
BACKEND ?= leveldb
chaos-programs: setup-dev
	$(with_java) $(PYTHON) -m tests.chaos.programs --kills $(KILLS) --backend $(BACKEND) $(if $(SEED),--seed $(SEED)) $(if $(DAYS),--days $(DAYS)) --json var/programs-$(BACKEND).json

lint: setup-dev
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	.venv/bin/lint-imports --no-cache

check: lint
	$(with_java) $(PYTHON) -m pytest -q --numprocesses 4 tests/unit tests/property

format: setup-dev
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

SF ?= 0.1
bench: setup
	@mkdir -p var
	$(with_java) $(PYTHON) -m benchmarks.tpch --sf $(SF) $(if $(FORCED),--forced) --json var/tpch-$(SF)$(if $(FORCED),-forced).json

# With ARGS=--only=NAME,NAME some are measured again, of the same commit.
figures: setup-dev
	@$(with_java) $(PYTHON) -m benchmarks.figures $(ARGS); code=$$?; $(PYTHON) -m docs.figures; exit $$code

reference: setup-dev
	@$(PYTHON) -m docs.reference || true
	@$(PYTHON) -m docs.figures
	@$(PYTHON) -m deploy.monitoring || true

docs: setup-dev
	$(PYTHON) -m mkdocs build --strict
	@echo "to read it: $(PYTHON) -m http.server --bind 127.0.0.1 --directory var/site"

protocol: setup-dev
	$(PYTHON) -m onager.protocol.generate

page:
	cd page && npm ci && node build.mjs

pictures: setup-dev
	$(with_java) $(PYTHON) -m docs.screenshots

# Never touches what standalone clusters keep below ~/.local/share/onager.
clean:
	rm -rf .venv var build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
