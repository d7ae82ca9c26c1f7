# `make test` needs Python 3.11 to 3.13 with venv, and make; nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := .venv-peers
DEMO := .venv-demo

# Two test processes on two cores: a second thread in each only makes them wait for each other (3x slower).
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

.PHONY: locked sbom test quick full lint site bench mutants fuzz load demo peers compat clean

test: lint
	$(PYTEST) --durations=15

# Oracles on small worlds, contracts, layering, parsing, errors; fewer drawn examples.
quick: $(READY)
	BAGCERT_EXAMPLES=20 $(PYTEST) -m "not slow and not full"

# What takes longer: the wheel in a fresh environment, every guide, the browser, mistakes made on purpose.
full: $(READY)
	$(PYTEST) -m full --durations=15

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The documentation as pages that work from a folder: open site/index.html. A broken link fails.
site: $(READY)
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/python -m mkdocs build --quiet

bench: $(READY)
	$(BIN)/python -m benchmarks.certificates

mutants: $(READY)
	$(BIN)/python -m tests.mutation.run

fuzz: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.server.fuzz
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.run --minutes 5

load: $(READY)
	$(BIN)/python -m benchmarks.serving

# Installs what it runs, and none of the tools of development.
demo: $(DEMO)/.ready
	$(DEMO)/bin/bagcert demo

$(DEMO)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DEMO)
	echo '*' > $(DEMO)/.gitignore
	$(DEMO)/bin/pip install --quiet -c constraints.txt -e .
	touch $@

# The outside check: the Adversarial Robustness Toolbox on our weights, in an environment of its own.
peers: $(PEERS)/.ready
	OMP_NUM_THREADS=1 $(PEERS)/bin/pytest tests/peers
	OMP_NUM_THREADS=1 $(PEERS)/bin/python -m studies rivals art

# `packaging` is imported by the toolbox but not asked for.
$(PEERS)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(PEERS)
	echo '*' > $(PEERS)/.gitignore
	$(PEERS)/bin/pip install --quiet -c constraints.txt -e . adversarial-robustness-toolbox==1.20.1 packaging 'pytest<9.2'
	touch $@

# The whole suite on the oldest and on the newest Python and torch that are supported; takes an hour with the set-up.
compat: compat-3.11-2.8.0 compat-3.13-2.15.0

compat-%: .venv-compat-%/.ready
	OMP_NUM_THREADS=1 .venv-compat-$*/bin/pytest -n 2 --dist worksteal

.venv-compat-%/.ready: pyproject.toml
	python$(firstword $(subst -, ,$*)) -m venv .venv-compat-$*
	echo '*' > .venv-compat-$*/.gitignore
	.venv-compat-$*/bin/pip install --quiet torch==$(lastword $(subst -, ,$*)) -e '.[all,dev]'
	touch $@

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[all,dev]'
	touch $@

# The same environment from exactly the files whose SHA-256 we know, for Python 3.11 on Linux x86_64 without a GPU:
# `make locked test`. The CPU build of torch is not on PyPI: name its index in PIP_EXTRA_INDEX_URL.
locked: supply/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-deps --require-hashes -r supply/requirements.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	touch $(READY)

sbom: $(READY)
	$(BIN)/python -m supply.sbom > sbom.json

clean:
	rm -rf $(VENV) $(PEERS) $(DEMO) site .venv-compat-* .mypy_cache .pytest_cache .ruff_cache .hypothesis mutants
