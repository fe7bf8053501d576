# Every target creates what it requires: a virtual environment in .venv with the versions pinned in constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
# uv installs in a third of pip's time.
new_environment = $(PYTHON) -m venv $(1) && $(1)/bin/python -m pip install --quiet --disable-pip-version-check uv
install = $(1)/bin/uv pip install --quiet --python $(1)/bin/python
PYTEST := -m pytest -n auto --dist loadfile --no-loadscope-reorder
# Each group of tests has processes of its own: until a process ends, it keeps all that TensorFlow compiled.
GROUPS := journeys docs cli export recipes
in_groups = failed=0; for group in $(GROUPS:%=tests/%) "tests $(GROUPS:%=--ignore=tests/%)"; do \
	$(1) $$group || failed=1; done; exit $$failed
# What the demo requires, and everything.
RUNNABLE := .venv/runnable
READY := .venv/ready
# MediaPipe requires a different absl-py than tf-models-official, so the test of its clients has a separate environment.
CLIENT := .venv-mediapipe
CLIENT_CHECK = $(CLIENT)/bin/python tests/export/tflite/mediapipe_client.py check
CLIENT_LIBRARIES := libegl1 libgles2 libgl1 libglib2.0-0 libsm6 libxext6
export TF_CPP_MIN_LOG_LEVEL ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-newest test-oldest check coverage lint format docs clean browser web-runtime kotlin

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(RUNNABLE) ## Pre-train, fine-tune, export and check a small model; writes runs/demo/report.html
	$(BIN)/keras-vit demo

test: lint $(CLIENT)/ready browser web-runtime ## Lint, then the journeys and all unit tests, one process per CPU core
	$(call in_groups,$(BIN)/python $(PYTEST) -m 'not extended' --durations=10)

test-all: $(CLIENT)/ready browser web-runtime kotlin ## The tests that make test omits: killed runs, notebooks, more journeys, ...
	$(BIN)/python $(PYTEST) -m extended --durations=25

test-newest: .venv-newest/ready $(CLIENT)/ready browser web-runtime kotlin ## All tests with the newest releases that setup.cfg allows
	$(call in_groups,.venv-newest/bin/python $(PYTEST))

test-oldest: .venv-oldest/ready $(CLIENT)/ready browser web-runtime kotlin ## All tests with the oldest releases that setup.cfg allows
	$(call in_groups,.venv-oldest/bin/python $(PYTEST) -W default)  # old releases warn of each other

check: lint ## Lint, types and quick tests of imports, API, layers, weights and recipes: run before each commit
	$(BIN)/python $(PYTEST) -m 'not slow and not extended' -q tests/test_*.py tests/layers/test_*.py \
		tests/weights/test_*.py tests/recipes/test_*.py

coverage: $(CLIENT)/ready browser web-runtime kotlin ## All tests; lists the lines that no test runs
	$(BIN)/python $(PYTEST) --cov --cov-report=term-missing:skip-covered

lint: $(READY) ## Check style and format with ruff, and types with mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/typos
	$(BIN)/mypy -p keras_vit -p keras_vit_cli

format: $(READY) ## Auto-fix lint and format with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY) ## Build the guides and the API reference: build/site/index.html
	$(BIN)/python -m sphinx -EW --keep-going -q -d build/doctrees docs build/site
	@echo "Open $(CURDIR)/build/site/index.html"

clean: ## Remove the virtual environments, caches and build/; keeps runs/
	rm -rf .venv .venv-newest .venv-oldest $(CLIENT) .pytest_cache .ruff_cache .mypy_cache build *.egg-info

$(RUNNABLE): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14) and "TensorFlow requires Python 3.11, 3.12 or 3.13 here: make PYTHON=python3.11")'
	$(call new_environment,.venv)
	$(call install,.venv) --constraint constraints.txt --editable '.[tensorflow,recipes,export]'
	@touch $@

$(READY): $(RUNNABLE)
	$(call install,.venv) --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Updated by each run. Without [dev], whose tf-models-official requires TensorFlow 2.20.
.venv-newest/ready: FORCE
	$(call new_environment,.venv-newest)
	$(call install,.venv-newest) --upgrade --editable '.[test]'
	@touch $@

.venv-oldest/ready: setup.cfg pyproject.toml constraints-oldest.txt
	$(call new_environment,.venv-oldest)
	$(call install,.venv-oldest) --constraint constraints-oldest.txt --editable '.[dev]'
	@touch $@

FORCE:

$(CLIENT)/ready: constraints-mediapipe.txt
	$(call new_environment,$(CLIENT))
	$(call install,$(CLIENT)) --constraint $< mediapipe
	@$(CLIENT_CHECK) >$(CLIENT)/check.log 2>&1 || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		apt-get -qq update && apt-get -qq install -y --no-install-recommends $(CLIENT_LIBRARIES); } || true
	@$(CLIENT_CHECK) >$(CLIENT)/check.log 2>&1 || { tail -n 1 $(CLIENT)/check.log; \
		echo "MediaPipe does not load. As root: apt-get install $(CLIENT_LIBRARIES). Then run make test again."; exit 1; }
	@touch $@

# Required by the tests of the web demo.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { [ "$$(id -u)" = 0 ] && \
		command -v apt-get >/dev/null && apt-get -qq update && \
		apt-get -qq install -y --no-install-recommends chromium chromium-driver; } || { \
		echo "Chromium is missing. As root: apt-get install chromium chromium-driver. Then run make test again."; exit 1; }

web-runtime: $(READY)
	@$(BIN)/python -c 'from keras_vit.export.web.page import fetch_web_runtime; fetch_web_runtime()'

# Required by the test of the phones' code.
kotlin: $(READY)
	@command -v java >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		apt-get -qq update && apt-get -qq install -y --no-install-recommends default-jre-headless; } || { \
		echo "Java is missing. As root: apt-get install default-jre-headless. Then run make test-all again."; exit 1; }
	@PYTHONPATH=. $(BIN)/python tests/kotlin_compiler.py
