PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check benchmarks clean

demo: .venv/.demo-installed  ## compare four strategies over 20 devices
	$(BIN)/python experiments/compare.py

test: .venv/.dev-installed  ## run all tests
	$(BIN)/pytest

check: .venv/.dev-installed  ## lint, check the formatting and the types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

benchmarks: .venv/.dev-installed  ## measure; see benchmarks/README.md
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/coordination.py

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/.demo-installed: pyproject.toml constraints.txt | .venv/bin/pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[export]'
	touch $@

.venv/.dev-installed: pyproject.toml constraints.txt | .venv/bin/pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@ .venv/.demo-installed

clean:  ## remove the environment and what tools left
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
