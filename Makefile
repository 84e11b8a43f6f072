# `make demo` and `make test` each work from nothing: they make .venv themselves.
# Another interpreter: `make test PYTHON=python3.13`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --quiet --no-compile -c constraints.txt
COMPILE := $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true  # on all cores; pip would on one

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint format bench-quick clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.installed  ## a training that waits for data, why, and the same one fed (about a minute)
	$(BIN)/headrace demo

# Tests kill, stop and race real processes, and wait for them more than they compute: on two cores, files of tests run in
# three processes, each file's tests in turn (`make test JOBS=0`: all in one). A test that fails is tried once more, by
# itself: what fails twice blocks the merge, what fails once is a race to be found, and the last line names it.
# They start some hundred interpreters, each of which would compile our modules anew where the environment forbids to keep
# what was compiled.
test: export PYTHONDONTWRITEBYTECODE =
JOBS ?= 3
test: lint  ## everything that blocks a merge: ruff, mypy, pytest
	$(BIN)/python -m pytest --numprocesses=$(JOBS) --dist=loadfile || { \
		code=$$?; [ $$code -eq 1 ] || exit $$code; \
		failed=$$($(BIN)/python -c 'import json; print(*json.load(open(".pytest_cache/v/cache/lastfailed")))'); \
		echo "== once more, those that failed"; \
		$(BIN)/python -m pytest -v --last-failed --last-failed-no-failures none || exit; \
		echo "== passed only at the second try: $$failed"; \
	}

lint: $(VENV)/.installed-dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers=2

format: $(VENV)/.installed-dev  ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-quick: $(VENV)/.installed-bench  ## run every benchmark with --quick, to prove that it still runs
	@set -e; for script in $$(grep -l '^if __name__ == "__main__"' benchmarks/*.py); do \
		echo "== $$script --quick"; $(BIN)/python $$script --quick; \
	done

clean:  ## remove .venv and what tools left behind
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e .
	@$(COMPILE)
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[dev]'
	@$(COMPILE)
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-bench: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[dev,bench]'
	@$(COMPILE)
	@touch $@ $(VENV)/.installed-dev $(VENV)/.installed
