# `make test` needs Python 3.11 or 3.12 with venv, and make; nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: test quick lint bench mutants demo clean

test: lint
	$(BIN)/pytest -n 2 --dist worksteal

quick: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m benchmarks.certificates

mutants: $(READY)
	$(BIN)/python -m tests.mutation.run

demo: $(READY)
	$(BIN)/bagcert demo

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[all,dev]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis mutants
