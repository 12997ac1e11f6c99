# make demo    everything from nothing: set-up, data, a cluster, three queries
# make test    set-up with what tests need, then every test
# make check   the fast gate: format, lint, types, imports, unit and property tests
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON := .venv/bin/python
unexport PYTHONPATH

# The Java that set-up found is known only once set-up has run.
with_java = JAVA_HOME="$${JAVA_HOME:-$$(cat .venv/java-home)}"

.PHONY: help setup setup-dev demo test check format protocol bench clean

help:
	@grep -E '^# make' Makefile | sed 's/^# //'
	@echo "make format  let ruff format and fix"
	@echo "make bench   TPC-H against plain Spark (SF=0.1, FORCED=1 cuts every exchange)"
	@echo "make setup | protocol | clean"

setup:
	@scripts/setup bench

setup-dev:
	@scripts/setup dev

demo: setup
	@$(with_java) $(PYTHON) -m benchmarks.demo

test: setup-dev
	$(with_java) $(PYTHON) -m pytest

check: setup-dev
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	.venv/bin/lint-imports --no-cache
	$(with_java) $(PYTHON) -m pytest -q tests/unit tests/property

format: setup-dev
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

SF ?= 0.1
bench: setup
	@mkdir -p var
	$(with_java) $(PYTHON) -m benchmarks.tpch --sf $(SF) $(if $(FORCED),--forced) --json var/tpch-$(SF)$(if $(FORCED),-forced).json

protocol: setup-dev
	$(PYTHON) -m onager.protocol.generate

# Never touches what standalone clusters keep below ~/.local/share/onager.
clean:
	rm -rf .venv var build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
