# Every target sets up what it needs: a virtual environment in .venv with the tested versions.
PYTHON ?= python3
BIN := .venv/bin
DATA ?= data

.PHONY: demo test lint bench clean

demo: .venv/ready
	$(BIN)/isthmus demo

test: .venv/ready
	$(BIN)/python -m pytest -n 2

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/ready
	$(BIN)/python -m benchmarks speed --data-root $(DATA) --json speed.json --docs

clean:
	rm -rf .venv

# torch comes first and pinned: asked for by another package it may bring gigabytes of CUDA.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
