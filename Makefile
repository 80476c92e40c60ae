# Every target sets itself up from a fresh clone; the set-up runs once (the stamp file).
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DEMO := .demo
REAL := live serve link export report_html

.PHONY: help setup demo test check evidence bench format clean

help:
	@echo "make demo    train two real models under traceml and show what it says"
	@echo "make test    run every test"
	@echo "make check   format, lint, types, import contracts, documentation"
	@echo "make bench   measure what measuring costs"

setup: $(READY)

# torch first and by itself: it is the user's, and installing traceml must not move it.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	@touch $@

demo: $(READY)
	@rm -rf $(DEMO)
	@echo "== A CNN on handwritten digits: no code changed =="
	$(BIN)/traceml run --logs-dir $(DEMO)/logs --run-name digits examples/digits.py
	@echo "== A character-level transformer, batches sliced from memory: no code changed =="
	$(BIN)/traceml run --logs-dir $(DEMO)/logs --run-name transformer examples/char_transformer.py
	@echo "== The first card again, from its JSON =="
	$(BIN)/traceml view $(DEMO)/logs/digits/final_summary.json

# Fast suites first: a broken rule should not wait for a training run.
test: $(READY)
	$(BIN)/python -m coverage run -m pytest tests $(addprefix --ignore tests/,$(REAL) launch integration faults symptoms ranks lightning monai ignite labelled)
	@# Terminals, browsers, sockets and many processes at once: what a busy machine fails gets a second run, here and below.
	$(BIN)/python -m coverage run --append -m pytest $(addprefix tests/,$(REAL)) --reruns 1
	$(BIN)/python -m coverage report
	$(BIN)/python -m pytest tests/launch --reruns 1
	$(BIN)/python -m pytest tests/integration --reruns 1
	$(BIN)/python -m pytest tests/faults --reruns 1
	$(BIN)/python -m pytest tests/symptoms --reruns 1
	$(BIN)/python -m pytest tests/ranks --reruns 2
	$(BIN)/python -m pytest tests/lightning --reruns 1
	$(BIN)/python -m pytest tests/monai tests/ignite --reruns 1
	$(BIN)/python -m pytest tests/labelled --reruns 2

check: $(READY)
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m mkdocs build --strict

# The longer proofs: every setting of the notebooks, and the tables of docs/evidence.
evidence: $(READY)
	TRACEML_EVIDENCE=1 $(BIN)/python -m pytest tests/symptoms tests/monai tests/labelled tests/lightning/test_labelled_runs.py tests/link/test_slurm.py tests/link/test_elastic.py --reruns 2
	@# Several hosts on one machine; 77: network namespaces are not allowed here, or there is no Slurm.
	$(BIN)/python scripts/nodes_in_namespaces.py --cut-s 60 || test $$? = 77
	$(BIN)/python scripts/slurm_in_namespaces.py || test $$? = 77
	@# The tables of docs/evidence. A figure that is off is in its table, and does not keep the next from being made.
	-$(BIN)/python benchmarks/faults --write
	-$(BIN)/python benchmarks/truth.py --write
	rm -f docs/evidence/results/verdicts.jsonl
	-$(BIN)/python benchmarks/verdicts.py --times 5 --write
	-$(BIN)/python benchmarks/estimates.py --write
	-$(BIN)/python benchmarks/cost.py --write
	-scripts/gpu_check.sh --fake --write
	@# 2: there is no CUDA device.
	-scripts/gpu_check.sh --write || test $$? = 2

bench: $(READY)
	@for script in benchmarks/[!_]*.py; do echo "== $$script =="; $(BIN)/python $$script || exit 1; done

format: $(READY)
	$(BIN)/python -m ruff format .
	$(BIN)/python -m ruff check --fix .

clean:
	rm -rf $(DEMO) site .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
