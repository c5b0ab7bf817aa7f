# Needs only make and Python 3.11 or later. PYTHON=... chooses the interpreter.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
RUN := .venv/bin/python
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: demo test lint bench clean

demo: .venv/demo.stamp ## find nine minerals on a local cluster; the picture is demo/demo.png
	$(RUN) -m dask dca demo -o demo

test: lint
	$(RUN) -m pytest -n 2 --dist loadfile

lint: .venv/test.stamp
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	find dask_dca -name '*.py' -print0 | xargs -0 $(RUN) -m numpydoc lint

bench: .venv/bench.stamp ## DATA=folder: where the data sets are
	$(if $(DATA),DASK_DCA_DATA="$(DATA)") $(RUN) -m benchmarks

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed: make PYTHON=/path/to/python3" >&2; exit 1; }
	"$(PYTHON)" -m venv .venv
	$(RUN) -m pip install --quiet --upgrade pip

.venv/demo.stamp: pyproject.toml | .venv/bin/python
	$(RUN) -m pip install --quiet -e ".[plot]"
	@touch $@

.venv/test.stamp: pyproject.toml | .venv/bin/python
	$(RUN) -m pip install --quiet -e . --group test --group types
	@touch $@

.venv/bench.stamp: pyproject.toml | .venv/bin/python
	$(RUN) -m pip install --quiet -e . --group bench
	@touch $@

clean:
	rm -rf .venv demo dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
