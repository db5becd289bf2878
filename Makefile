# Every target sets up what it needs; Python 3.11 or later and make are enough.
# Variables: PYTHON (interpreter), VENV (where it is set up), ARGS (for pytest, the demo, fuzzing or the benchmarks), TIME (seconds
# a fuzzed parser).

find_python = $(shell for p in $(1); do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

PYTHON ?= $(call find_python,python3.11 python3.12 python3.13 python3.14 python3 python)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := -m pip install --quiet --disable-pip-version-check
ARGS ?=
TIME ?= 60

# Generated code comes from the oldest protoc whose output the supported protobuf packages read. It runs on Python 3.11 and 3.12.
PROTO_PYTHON ?= $(call find_python,python3.11 python3.12)
PROTO_VENV ?= .venv-proto
PROTO_TOOLS := grpcio-tools==1.63.2 mypy-protobuf==3.6.0 'setuptools<80'
PROTO_OUT ?= .

.DEFAULT_GOAL := help
.PHONY: help setup demo test check fuzz bench bench-client proto engines clean
.DELETE_ON_ERROR:

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.installed  ## the package and its tools in .venv

demo: setup  ## real captures through a bridge, shown in the terminal
	@$(BIN)/otel-bridge demo $(ARGS)

test: setup engines  ## all tests
	@$(BIN)/python -m pytest $(ARGS)

check: setup  ## lint, format, types, layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

fuzz: setup  ## the parsers of foreign bytes, TIME seconds each (ARGS: --keep, or names of targets)
	@PYTHONPATH=tests $(BIN)/python -m fuzz.session --time $(TIME) $(ARGS)

bench: setup  ## speeds beside other programs, as ratios in one run; every value in bench.json (ARGS: --only NAME, --full)
	@$(BIN)/python tests/bench/run.py --json bench.json $(ARGS)

bench-client: setup  ## what the C++ client costs a device, beside ETDumpGen (needs the extra `aot`)
	@$(BIN)/python tests/bench/client.py

proto: $(PROTO_VENV)/.installed  ## generate otel_bridge/v1 anew
	@PATH="$(CURDIR)/$(PROTO_VENV)/bin:$$PATH" $(PROTO_VENV)/bin/python -m grpc_tools.protoc -Iproto \
		--python_out=$(PROTO_OUT) --grpc_python_out=$(PROTO_OUT) --mypy_out=quiet:$(PROTO_OUT) --mypy_grpc_out=quiet:$(PROTO_OUT) \
		proto/otel_bridge/v1/*.proto

engines: setup  ## what some tests need beyond Python, as far as this machine can make it
	@$(MAKE) --no-print-directory $(PROTO_VENV)/.installed || echo "engines: no $(PROTO_VENV): see above"
	@$(BIN)/python tests/support/engines.py

clean:  ## remove what the other targets made
	rm -rf $(VENV) $(PROTO_VENV) .engines .fuzz bench.json dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(VENV)/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is not on PATH; name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) --editable '.[dev]'
	@touch $@

$(PROTO_VENV)/.installed: Makefile
	@test -n "$(PROTO_PYTHON)" || { echo "generating code needs Python 3.11 or 3.12; name one: make PROTO_PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PROTO_PYTHON) -m venv $(PROTO_VENV)
	$(PROTO_VENV)/bin/python $(PIP) $(PROTO_TOOLS)
	@touch $@
