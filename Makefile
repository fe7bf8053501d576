# Every target sets up what it needs: a virtual environment in .venv with the exact versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
export TF_CPP_MIN_LOG_LEVEL ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test lint format clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## Pre-train, fine-tune, export and check a small model; writes runs/demo/report.html
	$(BIN)/keras-vit demo

test: lint ## Lint, then all tests, a process a core
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: $(READY) ## Check style and format with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY) ## Mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove the virtual environment and caches; runs/ stays
	rm -rf .venv .pytest_cache .ruff_cache build *.egg-info

$(READY): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "keras_vit needs Python 3.11 or later: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
