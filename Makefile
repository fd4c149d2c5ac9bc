# Everything that is done with this checkout. The first target that needs packages makes .venv, once.
#
#   make serve    start the server on loopback with an SQLite file        make check   lint, types, stubs, house rules
#   make test     run the tests                                          make long    the tests that take minutes
#   make docs     build the documentation into docs/_build               make bench   measure; writes docs/performance.md
#   make sim      simulate the server with faults, from seeds            make fuzz    feed parsers with damaged input
#
# Another interpreter: make test PYTHON=python3.12 VENV=.venv312

PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11 python,$(if $(shell $(name) -c 'import sys; print(sys.version_info >= (3, 11) or "")' 2>/dev/null),$(name))))
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=

# HOME may be empty or not writable: then no cache is kept there.
export UV_NO_CACHE ?= $(if $(HOME),,1)
export UV_PYTHON_DOWNLOADS ?= never
export UV_SYSTEM_CERTS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK ?= 1

.PHONY: serve test check bench long sim fuzz docs setup clean

serve: $(VENV)/.serve-ready
	@exec $(BIN)/cronoq-trio serve $(ARGS)

test: $(VENV)/.dev-ready
	$(BIN)/python -m pytest $(ARGS)

long: $(VENV)/.dev-ready
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -m long $(ARGS)
	$(if $(ARGS),,HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest $(MANY))
	$(if $(ARGS),,$(MAKE) fuzz ARGS="--seconds 600")

# Tests of what may happen in any order, with 2,000 examples instead of 50.
MANY := $(addprefix tests/wire/test_,http2_pairs.py http2_differential.py grpc_goaway.py grpc_client_server.py hpack.py)

sim: $(VENV)/.serve-ready
	@exec $(BIN)/python -m cronoq_sansio.sim $(ARGS)

# Every file of the folder that has a corpus is a target; ten seconds each, unless ARGS="--seconds 600" says otherwise.
fuzz: $(VENV)/.dev-ready
	@for target in $(notdir $(wildcard fuzz/corpus/*)); do $(BIN)/python fuzz/$$target.py $(ARGS) || exit 1; done

check: $(VENV)/.dev-ready
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/generate_stubs.py --check
	$(BIN)/python tools/generate_reference.py --check
	$(BIN)/python -m pytest -q tests/tidy tests/docs

bench: $(VENV)/.dev-ready
	$(BIN)/python bench/run.py $(ARGS)

docs: $(VENV)/.docs-ready
	$(BIN)/python tools/generate_reference.py
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build

setup: $(VENV)/.dev-ready

# uv sets up when it is there and can; else, or when it fails, venv and pip.
# Each stamp says that the packages of one purpose are installed; a change of what they are installed from renews it.
# The server needs no grpcio; it is there so that the quickstart's worker of any gRPC client runs as it stands.
$(VENV)/.serve-ready: WHAT = .[grpcio]
$(VENV)/.dev-ready: WHAT = .[dev]
$(VENV)/.docs-ready: WHAT = .[dev,docs]

$(VENV)/.serve-ready $(VENV)/.dev-ready $(VENV)/.docs-ready: pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ]; then echo "Python 3.11 or newer is needed; name it: make PYTHON=/path/to/python3" >&2; exit 1; fi
	@echo "Setting up $(VENV) with $(WHAT) (once)"
	@{ command -v uv >/dev/null 2>&1 \
	    && uv venv -q --python "$(PYTHON)" --allow-existing $(VENV) \
	    && uv pip install -q --python $(BIN)/python -c constraints.txt -e '$(WHAT)'; } \
	|| { "$(PYTHON)" -m venv $(VENV) \
	    && $(BIN)/python -m pip install -q -c constraints.txt -e '$(WHAT)'; }
	@touch $@

clean:
	rm -rf $(VENV) docs/_build dist
