# `make test` needs Python 3.11 or 3.12 with venv, and make; nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Two test processes on two cores: a second thread in each only makes them wait for each other (3x slower).
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

.PHONY: test quick lint bench mutants fuzz load demo clean

test: lint
	$(PYTEST) --durations=15

quick: $(READY)
	$(PYTEST) -m "not slow"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m benchmarks.certificates

mutants: $(READY)
	$(BIN)/python -m tests.mutation.run

fuzz: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.deploy.serving.fuzz

load: $(READY)
	$(BIN)/python -m benchmarks.serving

demo: $(READY)
	$(BIN)/bagcert demo

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[all,dev]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis mutants
