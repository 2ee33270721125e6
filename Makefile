# Each target works alone on a fresh machine with Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: install demo test smoke deep lint paper bench speed audit audit-packages mutation fuzz docs notebooks gallery clean

install: $(VENV)/.dev

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml lab/pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[dev]' --editable './lab[bench]'
	@touch $@ $(VENV)/.demo

# PyTorch's sympy wants an mpmath below our pin; the package itself takes either.
$(VENV)/.peers: pyproject.toml lab/pyproject.toml constraints.txt | $(BIN)/python
	sed '/^mpmath==/d' constraints.txt > $(VENV)/peers.txt
	$(subst constraints.txt,$(VENV)/peers.txt,$(PIP)) --editable . --editable './lab[peers]'
	@touch $@

$(VENV)/.docs: pyproject.toml lab/pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[docs]' --editable ./lab
	@touch $@

demo: $(VENV)/.demo
	$(BIN)/dpsep demo

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright

# Programs are compiled as users' are where bits or long computations are the point, and cheaply elsewhere.
CHEAP := XLA_FLAGS="--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
PYTEST := $(BIN)/pytest --numprocesses 2 --dist worksteal
AS_USERS := tests/privacy

# Everything that a promise rests on.
test: lint
	$(CHEAP) $(PYTEST) src lab tests $(addprefix --ignore ,$(AS_USERS)); rest=$$?; $(PYTEST) $(AS_USERS) && exit $$rest

# Under a minute: style, import arrows, one fit of each model, the laws of the gate.
smoke: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(CHEAP) $(PYTEST) --quiet tests/test_smoke.py tests/privacy/test_gate.py tests/privacy/test_grid.py

# What takes hours: attacks at scale, every fault, mutants, damaged files, notebooks, the paper in small.
deep: $(VENV)/.dev
	$(BIN)/python tools/deep.py

paper: $(VENV)/.dev
	$(BIN)/dpsep paper all --out dpsep-paper

bench: $(VENV)/.dev
	$(BIN)/dpsep bench

# Speeds beside those of other packages, and the page that shows them: about half an hour of two cores.
speed: $(VENV)/.peers
	$(BIN)/dpsep bench speed --json docs/benchmarks/speed.json
	$(BIN)/python lab/tools/docs/speed.py

# Attacks at four times their usual size, the controls, and replays over options of all estimators.
audit: $(VENV)/.dev
	$(BIN)/dpsep audit --scale 4 --controls --matrix pairs --json dpsep-audit.json --plot dpsep-audit.png

# Known vulnerabilities of the pinned packages; needs the database of the registry.
audit-packages:
	$(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/python -m pip install --no-compile --quiet --disable-pip-version-check --constraint constraints.txt pip-audit
	$(VENV)-audit/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

mutation: $(VENV)/.dev
	$(BIN)/python tools/mutation/run.py --sample 25

fuzz: $(VENV)/.dev
	$(BIN)/python tools/fuzz/run.py --inputs 1000000 --target all --seed 0 --out dpsep-fuzz

# The tutorials are run where they or the package have changed; the site needs no network, to be made or read.
docs: notebooks
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The tutorials as notebooks with their outputs, below build/notebooks.
notebooks: $(VENV)/.docs
	$(BIN)/python tools/docs/execute.py

# The pictures of the gallery, measured anew: about a quarter of an hour of one core.
gallery: $(VENV)/.docs
	$(BIN)/python lab/tools/gallery/all.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
