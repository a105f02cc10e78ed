# Needs only make and Python 3.11 or newer. `make quickstart` shows a run, `make test` tests the project.
SHELL := /bin/sh
VENV ?= .venv
BIN := $(VENV)/bin
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip -qq

# The first interpreter that is new enough; an empty answer is explained by `python`.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

# Tests wait more than they compute: for sandboxes to start, servers to answer, time limits to pass.
TESTS_AT_ONCE ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))

.DEFAULT_GOAL := help
.PHONY: help python quickstart test test-all lint format bench picture clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

python:
	@test -n "$(PYTHON)" || { echo "hermes-run needs Python 3.11 or newer, and none is on the PATH."; \
	echo "Install one (python.org, your system's packages, pyenv), or name it: make quickstart PYTHON=/path/to/python3.12"; exit 2; }

$(BIN)/python: | python
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 \
	|| { $(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --quiet --python $(VENV)/bin/python install pip; } \
	|| { echo "$(PYTHON) cannot make virtual environments: on Debian and Ubuntu install python3-venv."; exit 2; }

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "installing hermes-run"
	@$(PIP) install --editable . && touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@echo "installing hermes-run and what its tests need"
	@$(PIP) install --editable '.[dev]' && touch $@ $(VENV)/.installed

quickstart: $(VENV)/.installed ## a real agent session over twelve little tasks, without key or account
	@$(BIN)/hermes-run runs/quickstart.yaml || { code=$$?; test $$code = 4 || exit $$code; \
	echo; echo "Once more without bubblewrap: commands run in private folders of this machine (sandbox.backend=local)."; \
	$(BIN)/hermes-run runs/quickstart.yaml --set sandbox.backend=local; }

test: $(VENV)/.installed-dev ## the quick tests, in under three minutes
	$(BIN)/pytest -q -n $(TESTS_AT_ONCE) -m "not slow"

test-all: $(VENV)/.installed-dev ## every test; HERMES_RUN_REQUIRE=bubblewrap,datasets makes a missing part a failure
	$(BIN)/pytest -q -n $(TESTS_AT_ONCE)

lint: $(VENV)/.installed-dev ## ruff, mypy and the floors of the architecture
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev ## lay the code out
	$(BIN)/ruff check --fix --select I
	$(BIN)/ruff format

bench: $(VENV)/.installed-dev ## what the README's figures come from
	@for file in benchmarks/*.py; do echo; echo "== $$file"; $(BIN)/python $$file || exit $$?; done

picture: $(VENV)/.installed ## docs/quickstart.svg, from the last quickstart
	$(BIN)/python docs/picture.py data/quickstart

clean: ## everything that make made; data/ stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
