# What a person needs, in the order they need it:
#   make quickstart   a real model on a real engine, and the table
#   make check test   lint, types, layers; unit and integration tests
#   make engines      tests that start real engines on this machine's CPU: llama.cpp
#   make engines-heavy  the same for vLLM, torch and OpenVINO, in environments of 4 GB that it makes
#   make browser-test tests of the HTML report in a real Chromium; make browser installs one (Debian)
#   make bench        benchmarks of our own code (no pass or fail)
#   make proof        the long ones, kept out of CI
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -q
DOMAINS := bench tests benchmarks examples

.PHONY: quickstart check test engines engines-heavy browser browser-test bench proof format clean

# Status 1 says that a trial is not valid, as on a machine that has other things to do: the table tells, and the installation is fine.
quickstart: $(VENV)/.quickstart
	$(BIN)/bench run quickstart || test $$? -eq 1

check: $(VENV)/.dev
	$(BIN)/ruff check $(DOMAINS)
	$(BIN)/ruff format --check $(DOMAINS)
	$(BIN)/mypy
	$(BIN)/lint-imports

# $(call tried,WHAT,HOW): what failed beside others, or while something else ran on this machine, is tried by itself, at most twice more.
AGAIN := --last-failed --last-failed-no-failures none
tried = $(PYTEST) $(2) -m "$(1)" || $(PYTEST) $(AGAIN) -m "$(1)" || $(PYTEST) $(AGAIN) -m "$(1)"

# Three at once keep two cores busy, for most tests wait for something. Those that compare clocks run alone afterwards.
test: $(VENV)/.dev
	$(call tried,not engine and not proof and not browser and not alone,-n 3 --dist worksteal)
	$(call tried,alone and not engine and not proof)

engines: $(VENV)/.dev
	$(call tried,engine and not heavy and not proof)

# The environments, of 3.4 and 0.3 GB, are in .venv-vllm and .venv-openvino.
engines-heavy: $(VENV)/.dev
	$(BIN)/python tests/runners/vllm_venv.py
	$(BIN)/python -m tests.runners.openvino_venv
	$(call tried,heavy and not proof)

# Whatever Chromium is there, else Debian's package where we may install it.
CHROMIUM := { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null
browser:
	@$(CHROMIUM) || { test "$$(id -u)" -eq 0 && command -v apt-get >/dev/null; } || \
	  { echo "There is no Chromium. On Debian: sudo apt-get install chromium. Elsewhere: put chromium or google-chrome on PATH."; exit 1; }
	@$(CHROMIUM) || { apt-get update -qq && apt-get install -qq --no-install-recommends chromium; }

browser-test: $(VENV)/.dev browser
	$(PYTEST) -m "browser and not proof"

bench: $(VENV)/.dev
	$(PYTEST) benchmarks --benchmark-only
	for script in benchmarks/[!_t]*.py; do $(BIN)/python $$script || exit 1; done

proof: $(VENV)/.dev
	$(PYTEST) -m proof --timeout 7200

format: $(VENV)/.dev
	$(BIN)/ruff check --fix $(DOMAINS)
	$(BIN)/ruff format $(DOMAINS)

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not installed. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed, and this is $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.quickstart: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[llamacpp,nvidia]'
	touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[llamacpp,nvidia,dev]'
	touch $@ $(VENV)/.quickstart

clean:
	rm -rf $(VENV) .venv-vllm .venv-openvino build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
