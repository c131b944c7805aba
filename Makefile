# `make setup` once, then anything else; every target does its own set-up. PYTHON chooses the interpreter behind .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.setup-done
DEMO   := examples/matmul_chain

# Where there is no .venv (a GPU machine without a package index), the system's interpreter runs the source tree,
# and what it lacks comes from bundle/ (see `make bundle`). Its own pytest plugins may not suit the bundle's pytest.
ifneq ($(wildcard $(BIN)/python),)
HERE_PYTHON := $(BIN)/python
else
HERE_PYTHON := PYTHONPATH=$(CURDIR)/src:$(CURDIR)/bundle PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTEST_PLUGINS=pytest_timeout $(PYTHON)
endif

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow check format redteam test-gpu bench bench-gpu bundle

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## create .venv with everything, under constraints.txt

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	touch $@

demo: $(STAMP)  ## an honest candidate and one that cheats; what the machine can do, and is wrong with it; a profile; an assistant
	@# 4 is "not decided": a busy machine may leave it at that.
	$(BIN)/trackside compare --budget 30 $(DEMO)/baseline.py $(DEMO)/candidate.py || test $$? -eq 4
	@echo "Now a candidate that keeps old answers. A loop over one input would call it thousands of times faster:"
	$(BIN)/trackside compare --budget 30 $(DEMO)/baseline.py $(DEMO)/cheat.py; test $$? -eq 1
	@$(BIN)/trackside runs show last --json | grep -q '"verdict": "rejected"'
	$(BIN)/trackside ceilings cpu disk
	$(BIN)/trackside doctor --family os --family memory --family storage; test $$? -le 1
	$(BIN)/trackside profile examples/slow_training/train.py
	@echo; echo "All of this is for your coding assistant too. To connect one (cursor, codex and vscode likewise):"
	$(BIN)/trackside mcp --print-config claude-code
	@echo "It may look then. With --allow-exec in that line too it may also measure, profile and compare: docs/mcp.md"

# One process more than the two cores that it is made for: most tests wait for processes of their own.
test: $(STAMP)  ## the tests that need no GPU and no patience
	$(BIN)/python -m pytest -q -n 3 --dist worksteal -m "not gpu and not slow"

# One after another: some of them time things, or need both cores.
test-slow: $(STAMP)  ## those that need patience, but no GPU
	$(BIN)/python -m pytest -q -m "slow and not gpu"

check: $(STAMP)  ## lint, format, types, import graph
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src
	$(BIN)/python -m pytest -q tests/test_import_graph.py

format: $(STAMP)  ## rewrite the sources as `check` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

redteam: $(STAMP)  ## the whole corpus through full comparisons, the naive check, and with checks switched off
	$(BIN)/python -m tests.redteam.judged --full --out tests/redteam/results/cpu-full.json
	$(BIN)/python -m tests.redteam.judged --kind false --knock-out --out tests/redteam/results/cpu-knock-out.json
	$(BIN)/python -m tests.redteam.judged --kind false --naive --out tests/redteam/results/cpu-naive.json
	$(BIN)/python -m tests.redteam.matrix

# Only files with such tests: others may import what a GPU machine does not have (scipy, hypothesis).
test-gpu:  ## the tests that need a CUDA device
	@files="$$(grep -rlE 'mark\.gpu' tests --include='test_*.py' || true)"; \
	test -n "$$files" || { echo "no test is marked gpu" >&2; exit 1; }; \
	set -x; $(HERE_PYTHON) -m pytest -q -m gpu -rs $$files

bench: $(STAMP)  ## Trackside's own speed on this CPU
	$(BIN)/python -m benchmarks --device cpu

bench-gpu:  ## the same on a CUDA device
	$(HERE_PYTHON) -m benchmarks --device cuda

bundle: $(STAMP)  ## bundle/: what a GPU machine without a package index lacks
	$(BIN)/python tools/bundle.py bundle
