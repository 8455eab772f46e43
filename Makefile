# Two commands matter: `make demo` and `make test`. Both prepare .venv by themselves.
# Another interpreter: `make test PYTHON=python3.12` (after `rm -rf .venv`).

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check

DEMO_READY := $(VENV)/.installed-demo
TEST_READY := $(VENV)/.installed-test

.DEFAULT_GOAL := help
.PHONY: help demo test lint fuzz setup clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    install what the demo needs into $(VENV) and run it"
	@echo "make test    install the test tools into $(VENV), lint, type-check and run the tests"
	@echo "make lint    only ruff, mypy and the import contract"
	@echo "make fuzz    load 100,000 damaged and forged model files (about 10 minutes; SEED=7 for other ones)"
	@echo "make setup   only prepare $(VENV) for development"
	@echo "make clean   remove build outputs, caches and pictures ($(VENV) stays)"

demo: $(DEMO_READY)
	$(BIN)/python examples/demo.py

test: lint
	$(BIN)/python -m pytest

lint: $(TEST_READY)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fuzz: $(TEST_READY)
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz_model_file.py --mutations 100000 --seed $(or $(SEED),0)

setup: $(TEST_READY)

# The stamps are older than pyproject.toml exactly when its dependencies may have changed; what the tests
# install includes what the demo needs.
$(DEMO_READY): pyproject.toml | $(BIN)/python
	@echo "Installing cstc and what the demo needs into $(VENV) (about a minute, only the first time) ..."
	@$(PIP) install --editable ".[plot,frames]"
	@touch $@

$(TEST_READY): pyproject.toml | $(BIN)/python
	@echo "Installing cstc and the test tools into $(VENV) (about a minute, only the first time) ..."
	@$(PIP) install --editable ".[test]"
	@touch $(DEMO_READY) $@

$(BIN)/python:
	@echo "Creating a virtual environment in $(VENV) with $(PYTHON) ..."
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(None if sys.version_info >= (3, 11) else "cstc needs Python 3.11 or later, and this is " + v + "; try make PYTHON=python3.11")'
	@$(PYTHON) -m venv $(VENV)

clean:
	rm -rf build dist out .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf src/*.egg-info .coverage htmlcov
	find src tests examples benchmarks -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
