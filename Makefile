# Two commands do all the set-up: `make demo` and `make test`. The rest is for those who work on the library.
FITS := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	if $$python -c '$(FITS)' 2>/dev/null; then echo $$python; break; fi; done)
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest

.PHONY: demo test lint fast slow examples bench clean

demo: .venv/.demo
	$(BIN)/llm-ocr demo

test: lint
	$(PYTEST) -n 2 --dist loadfile

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

fast: .venv/.dev
	$(PYTEST) -n 2 --dist loadfile -m "not slow"

examples: .venv/.dev
	$(BIN)/python examples/make_examples.py

bench: .venv/.dev
	$(BIN)/python benchmarks/embedded.py examples --peers none

clean:
	rm -rf .venv build dist llm-ocr-demo .pytest_cache .mypy_cache .ruff_cache

.venv/bin/python:
	@test -n "$(PYTHON)" && $(PYTHON) -c '$(FITS)' || { \
	echo "llm-ocr needs Python 3.11, 3.12 or 3.13; say where it is: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.demo: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable ".[embedded]"
	@touch $@

.venv/.dev: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable ".[embedded,dev]"
	@touch $@ .venv/.demo
