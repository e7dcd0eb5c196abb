# Two commands from a fresh clone: `make demo` measures and publishes, `make test` checks everything.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.demo-ready

# Four processes run the tests: what one has compiled the others are to find.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo docs quick-look test quick lint types unit asv nearest bench requirements clean

help:
	@echo "make demo   measure the newest commits that touch kernels/ on the best device here: 2 to 10 minutes"
	@echo "            ('harness demo' shows recorded measurements in seconds, and needs no clone)"
	@echo "make test   lint, types and tests, with real kernels on the CPU's OpenCL device"
	@echo "make quick  lint, types and the tests nearest to what changed since main, in less than a minute"
	@echo "make docs   the documentation as a site with a search, in .docs/index.html"
	@echo "make bench  how long the command line, the statistics and publishing take, and how well steps are found"
	@echo "make requirements  resolve anew, by hash, what the workflows install (asks the package index)"
	@echo "make clean  remove what these made"

$(READY): EXTRAS := dev
$(READY): SIZE := 2 GB
# Enough to measure: neither TVM nor LLVM.
$(DEMO_READY): EXTRAS := asv,opencl
$(DEMO_READY): SIZE := 800 MB

$(READY) $(DEMO_READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("Python 3.10 or newer is needed; PYTHON=python3.12 make ... chooses another one.")'
	@echo "Making $(VENV) with $$($(PYTHON) --version) (once; takes $(SIZE) of disk)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[$(EXTRAS)]'
	@# Wheels hold no links, so OpenCL's runtime has its two largest libraries twice: 290 MB.
	@for named in $(VENV)/lib/lib*.so.[0-9]*; do plain=$${named%%.so.*}.so; cmp -s $$named $$plain && ln -f $$named $$plain; done; true
	@# pip compiles on one core, and as little minds files that are for another Python. A quarter is tests of others.
	-$(BIN)/python -m compileall -qq -j 0 -x 'site-packages/.*/tests?/' $(VENV)/lib
	@# PyCUDA is compiled on the spot, so it is tried only where there is a card and a compiler to use it with.
	@if command -v nvcc >/dev/null && nvidia-smi -L >/dev/null 2>&1; then \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cuda]' \
		|| echo "PyCUDA did not build (its output is above): going on without CUDA."; \
	fi
	@touch $@

# Its words come before an installation, which may take a minute. What 'make test' installs is enough too.
demo: quick-look $(or $(wildcard $(READY)),$(DEMO_READY))
	$(BIN)/python scripts/demo.py

quick-look:
	@echo "This measures kernels on this machine: 2 to 10 minutes, and 800 MB of disk the first time."
	@echo "For a quick look, 'harness demo' shows recorded measurements of an H100 and an H200 in seconds."

docs: $(READY)
	$(BIN)/sphinx-build -q -W --keep-going -c docs/site . .docs
	@echo "Open .docs/index.html in a browser."

# mypy keeps one core busy for half a minute: side by side with the tests.
test: lint
	+$(MAKE) --no-print-directory --jobs=2 types unit

# Side by side. Types take a minute the first time, and seconds once mypy has its cache.
quick: $(READY)
	+$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint types nearest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# Four at a time, a file each: twice the cores of the smallest machine, as tests wait for sleeps and processes. With
# three, nine tenths of two cores were busy; six are no faster than four. One takes a gigabyte at most.
unit: $(READY)
	$(BIN)/python -m pytest -m "not gpu" -n 4 --max-worker-restart 0 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

# The asv that lies in $(VENV), whichever it is.
asv: $(READY)
	+$(MAKE) --no-print-directory unit PYTEST_ARGS="$(wildcard tests/test_asv*.py tests/faults/test_asv*.py) tests/test_publish.py"

nearest: $(READY)
	$(BIN)/python scripts/nearest_tests.py --seconds 40

bench: $(READY)
	$(BIN)/python scripts/bench_cli.py
	$(BIN)/python scripts/bench_statistics.py
	$(BIN)/python scripts/bench_history.py
	$(BIN)/python scripts/bench_changepoints.py --repetitions 20

requirements: $(READY)
	$(BIN)/python scripts/requirements.py

clean:
	rm -rf $(VENV) .asv .docs docs/site/reference .mypy_cache .pytest_cache .ruff_cache .benchmarks
