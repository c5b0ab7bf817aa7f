# Needs only make and Python 3.11 or later. PYTHON=... chooses the interpreter.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
RUN := .venv/bin/python
SEED ?= $(shell date -u +%Y%m%d)
export OPENBLAS_NUM_THREADS ?= 1
export PYTHONDONTWRITEBYTECODE := # else each process compiles every test again: five CPU seconds of ten

.PHONY: demo test test-infra test-lowest random lint style bench soak docs dist clean

demo: .venv/demo.stamp ## find nine minerals on a local cluster; the picture is demo/demo.png
	$(RUN) -m dask dca demo -o demo

test: style
	$(RUN) -m compileall -q benchmarks dask_dca # else each process that a test starts may compile it again
	$(RUN) -m pytest -n 4 --dist loadfile --no-loadscope-reorder --durations=15 # long files first: tests/conftest.py

# Client libraries of clouds leave connections open; a user's Python doesn't say so either.
test-infra: .venv-infra/stamp ## SLURM, the Dask operator, a hub, a gateway, Helm, S3, the image, started for real; as root on Debian
	sh tests/infra/packages.sh
	DASK_DCA_INFRA=1 .venv-infra/bin/python -m pytest -q --durations=15 \
		-W ignore::ResourceWarning -W default::pytest.PytestUnraisableExceptionWarning tests/infra

test-lowest: ## the models with the lowest versions that pyproject.toml names
	"$(PYTHON)" -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet uv
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct -e ".[plot,xarray,dataframe,s3]"
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest/bin/python hmmlearn hypothesis pykalman pytest pytest-timeout
	.venv-lowest/bin/python -m pytest -q -W default tests/models tests/test_store.py

random: .venv/test.stamp ## random examples of the property tests, about a minute; make random SEED=... repeats them
	@echo "random examples: make random SEED=$(SEED)"
	RANDOM_SECONDS=45 $(RUN) -m pytest -q -m hypothesis --hypothesis-seed=$(SEED) tests/geometry tests/engine tests/models

lint: style
	$(RUN) -m mypy # make test has it as a test, beside the others

style: .venv/test.stamp
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

bench: .venv/bench.stamp ## DATA=folder: where the data sets are
	$(if $(DATA),DASK_DCA_DATA="$(DATA)") $(RUN) -m benchmarks

soak: .venv/test.stamp .venv/bench.stamp ## an hour: faults at random moments of 50 fits, 910 random chunkings, 144 wrong blocks, streams that are killed 1,500 times, breakages of the package that tests must notice; then 40 GB through two workers of 2 GB
	DASK_DCA_SOAK=1 $(RUN) -m pytest -q tests/faults tests/deploy tests/jupyter \
		tests/cli/test_supported_inputs.py tests/models/test_supported_inputs.py
	$(RUN) -m benchmarks profile S14 S15 S17 --quick
	$(RUN) -m benchmarks soak chunkings blocks streams mutations S6-soak S6-holes

docs: .venv/docs.stamp ## the site is site/index.html; DASK_DCA_DOCS_ONLINE=1 links other libraries' pages too
	rm -rf site docs/generated
	$(RUN) -m sphinx -W -n --keep-going -q -d site/.doctrees docs site

dist: .venv/test.stamp ## wheel and source archive, checked; dist/ is what goes to a package index
	rm -rf dist
	$(RUN) -m pip install --quiet build twine
	$(RUN) -m build --outdir dist .
	$(RUN) -m twine check --strict dist/*

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed: make PYTHON=/path/to/python3" >&2; exit 1; }
	"$(PYTHON)" -m venv .venv
	$(RUN) -m pip install --quiet --upgrade pip

.venv/demo.stamp: pyproject.toml | .venv/bin/python
	$(RUN) -m pip install --quiet -e ".[plot,dashboard]"
	@touch $@

.venv/test.stamp: pyproject.toml | .venv/bin/python
	$(RUN) -m pip install --quiet -e . --group test --group types
	@touch $@

.venv/docs.stamp: pyproject.toml | .venv/bin/python
	$(RUN) -m pip install --quiet -e . --group docs
	@touch $@

.venv/bench.stamp: pyproject.toml | .venv/bin/python
	$(RUN) -m pip install --quiet -e . --group bench
	@touch $@

.venv-infra/stamp: pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed: make PYTHON=/path/to/python3" >&2; exit 1; }
	"$(PYTHON)" -m venv .venv-infra
	.venv-infra/bin/python -m pip install --quiet --upgrade pip
	.venv-infra/bin/python -m pip install --quiet -e ".[all,s3,gcs]" --group infra
	@touch $@

clean:
	rm -rf .venv .venv-infra .venv-lowest demo dist docs/generated site .mypy_cache .pytest_cache .ruff_cache .hypothesis
