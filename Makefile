# Two commands matter: `make demo` and `make test`. Both prepare .venv by themselves.
# Another interpreter: `make test PYTHON=python3.12` (after `rm -rf .venv`).

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check

SETUP      := pyproject.toml setup.py native/_native.c
DEMO_READY := $(VENV)/.installed-demo
TEST_READY := $(VENV)/.installed-test
DEV_READY  := $(VENV)/.installed-dev
DOCS_READY := $(VENV)/.installed-docs

# Test files run side by side, one process for each core; each test has one thread.
SIDE_BY_SIDE := -n logical --maxprocesses 8 --dist loadfile

# The oldest versions that pyproject.toml allows, in an environment of their own, with the oldest Python.
OLDEST       := .venv-oldest
OLDEST_READY := $(OLDEST)/.installed
OLDEST_PYTHON ?= python3.11
# What stands on those versions.  Left out: the service and the command line, whose packages are not the oldest ones
# there, and the parts that need no more than numpy or are run by these.
OLDEST_TESTS := tests/baselines tests/estimators tests/experts tests/frontier tests/model tests/paper tests/plotting \
	tests/report/test_report.py tests/cluster/test_samples.py tests/cluster/test_stored.py tests/cluster/test_workers.py \
	tests/test_boosting.py tests/test_folders.py tests/test_interop.py tests/test_lightgbm_engine.py \
	tests/test_lightgbm_trees.py tests/test_partitions.py tests/test_tables.py \
	tests/test_xgboost_engine.py tests/test_xgboost_trees.py

# What checks the page of a report; only the tests need it, and nothing of it goes into the package.
AXE         := build/axe/axe.min.js
AXE_VERSION := 4.14.0
AXE_DIGEST  := 20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878

.DEFAULT_GOAL := help
.PHONY: help demo test test-oldest lint docs axe fuzz sanitize mutants setup clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    install what the demo needs into $(VENV) and run it"
	@echo "make test    install the test tools into $(VENV), lint, type-check and run the tests"
	@echo "make test-oldest  most of the tests with the oldest versions that pyproject.toml allows, in $(OLDEST)"
	@echo "make lint    only ruff, mypy and the import contract"
	@echo "make docs    build the site into build/docs/html, run its tutorials, check its links and, with axe-core, its pages"
	@echo "make axe     fetch axe-core by npm, by which pages of reports and of the site are checked for accessibility"
	@echo "make fuzz    load 100,000 damaged and forged model files (about 10 minutes; SEED=7 for other ones)"
	@echo "make sanitize  the compiled walk under the sanitizers for addresses and undefined behaviour (about 20 seconds)"
	@echo "make mutants judge 60 mutations of the source by the tests (about an hour; goes on where it was; SEED=7)"
	@echo "make setup   only prepare $(VENV) for development"
	@echo "make clean   remove build outputs, caches and pictures ($(VENV) stays)"

demo: $(DEMO_READY)
	$(BIN)/python examples/demo.py
	$(BIN)/python examples/command.py

# Reasons of skips are shown: without a browser and axe-core, the page of a report is not tried in one.
test: lint
	$(BIN)/python -m pytest -rs $(SIDE_BY_SIDE)

test-oldest: $(OLDEST_READY)
	$(OLDEST)/bin/python -m pytest -p no:cacheprovider $(SIDE_BY_SIDE) $(OLDEST_TESTS)

lint: $(TEST_READY)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# A name or a link that leads nowhere is a warning, and a warning fails.  Pages that are gone must not stay.
docs: $(DOCS_READY)
	rm -rf build/docs docs/api docs/tutorials
	$(BIN)/python -m sphinx -W --keep-going -n -q -d build/docs/doctrees docs build/docs/html
	$(BIN)/python docs/check_site.py build/docs/html
	$(BIN)/python docs/check_access.py build/docs/html

axe: $(AXE)

$(AXE):
	@mkdir -p $(@D)
	cd $(@D) && npm pack --silent axe-core@$(AXE_VERSION) && tar xzf axe-core-$(AXE_VERSION).tgz package/axe.min.js
	cd $(@D) && echo "$(AXE_DIGEST)  package/axe.min.js" | sha256sum --check --quiet
	mv $(@D)/package/axe.min.js $@

fuzz: $(TEST_READY)
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz_model_file.py --mutations 100000 --seed $(or $(SEED),0)

sanitize: $(TEST_READY)
	$(BIN)/python tests/sanitize.py

mutants: $(DEV_READY)
	$(BIN)/python tests/mutate.py --count 60 --seed $(or $(SEED),0)

setup: $(TEST_READY)

# The stamps are older than these exactly when dependencies, or the compiled walk, may have changed; what the tests
# install includes what the demo needs.
$(DEMO_READY): $(SETUP) | $(BIN)/python
	@echo "Installing cstc and what the demo needs into $(VENV) (about a minute, only the first time) ..."
	@$(PIP) install --editable ".[plot,frames,cli]"
	@touch $@

$(TEST_READY): $(SETUP) | $(BIN)/python
	@echo "Installing cstc and the test tools into $(VENV) (about a minute, only the first time) ..."
	@$(PIP) install --editable ".[test]"
	@touch $(DEMO_READY) $@

$(DEV_READY): $(SETUP) | $(BIN)/python
	@$(PIP) install --editable ".[dev]"
	@touch $(DEMO_READY) $(TEST_READY) $@

$(DOCS_READY): $(SETUP) | $(BIN)/python
	@echo "Installing cstc and what the site needs into $(VENV) (about a minute, only the first time) ..."
	@$(PIP) install --editable ".[docs]"
	@touch $(DEMO_READY) $@

$(OLDEST_READY): $(SETUP) tests/oldest.txt
	@echo "Installing cstc and its oldest dependencies into $(OLDEST) (about a minute, only the first time) ..."
	@$(OLDEST_PYTHON) -m venv --clear $(OLDEST)
	@$(OLDEST)/bin/python -m pip --quiet --disable-pip-version-check install --constraint tests/oldest.txt \
		--editable ".[test]"
	@touch $@

$(BIN)/python:
	@echo "Creating a virtual environment in $(VENV) with $(PYTHON) ..."
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(None if sys.version_info >= (3, 11) else "cstc needs Python 3.11 or later, and this is " + v + "; try make PYTHON=python3.11")'
	@$(PYTHON) -m venv $(VENV)

clean:
	rm -rf build dist out .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf src/*.egg-info .coverage htmlcov docs/api docs/tutorials
	find src tests examples benchmarks -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
