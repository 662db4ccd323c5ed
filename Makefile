# Every target sets up what it needs: a virtual environment in .venv with the tested versions.
PYTHON ?= python3
BIN := .venv/bin
DATA ?= data
# Bytecode is kept, whatever the shell says: to compile torch anew takes every process seconds.
export PYTHONDONTWRITEBYTECODE :=
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test messages lint documents bench lowest clean

demo: .venv/program
	$(BIN)/isthmus demo

test: .venv/ready
	$(BIN)/python -m pytest -n 2 --dist worksteal

messages: .venv/ready
	$(BIN)/python -m pytest -n 2 --dist worksteal --write-messages

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

documents: .venv/ready
	$(BIN)/python tests/papers/documents.py

bench: .venv/ready
	$(BIN)/python -m benchmarks speed --data-root $(DATA) --json speed.json --docs

# The lowest versions that pyproject.toml allows, in an environment of their own.
lowest:
	scripts/lowest

clean:
	rm -rf .venv .lowest

# torch comes first and pinned: asked for by another package it may bring gigabytes of CUDA. Modules are
# compiled when they are first used: most of torch's never are.
.venv/program: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) --no-compile torch
	$(INSTALL) --no-compile --editable .
	touch $@

.venv/ready: .venv/program
	$(INSTALL) --editable '.[dev]'
	touch $@
