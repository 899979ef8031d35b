# Tests with a target of their own: long ones, and those that change the machine.

.PHONY: test-inrank test-other-kernels test-kernels coverage mutants campaign campaign-part test-slurm test-system-mpi browser report-picture

test-inrank: $(VENV)/tests-installed ## run the tests that are inside each of three MPI ranks
	$(BIN)/python tests/inrank/start.py

# Sandybridge, or the newest kernels of the processor where it takes kernels as old as that by itself.
ARITHMETIC := problems methods engine runfile transports theory sweeps privacy
test-other-kernels: $(VENV)/torch-installed ## run the tests that depend on arithmetic under the kernels of another processor (three minutes)
	$(BIN)/python -m tests.support.under_kernels other $(PYTEST_TOGETHER) -q -m "not timed and not slow" $(ARITHMETIC:%=tests/%)

KERNELS := Nehalem Sandybridge Haswell Zen SkylakeX
test-kernels: $(VENV)/torch-installed ## run all tests under each kind of kernels that the processor has (half an hour)
	@status=0; for kernels in $(KERNELS); do \
	  $(BIN)/python -m tests.support.under_kernels $$kernels $(PYTEST_TOGETHER) -q -m "not timed" || status=1; done; exit $$status

coverage: $(VENV)/torch-installed ## measure which branches the tests without MPI launches reach, and print the total
	$(PYTEST_TOGETHER) -q --ignore=tests/launched --ignore=tests/documents --cov=areabench --cov-branch --cov-report=term

# Mutants that are in build/mutants/log.jsonl are not tried again: an interrupted run continues.
mutants: $(VENV)/torch-installed ## change the source in 160 small ways and see whether a test fails: benchmarks/results/MUTANTS.md (half an hour)
	$(BIN)/python -m benchmarks.mutants --sample 200 --seed 11 --page benchmarks/results/MUTANTS.md \
	  --seen 1 2 3:engine,transports,runfile 5:runfile,transports 7:runfile,transports

# Runs that are in runs/campaign/log.jsonl are not made again: an interrupted campaign continues.
campaign: $(VENV)/tests-installed ## 500 runs, most with a fault, on MPI and in the simulator: docs/campaign.md (one to two hours)
	$(BIN)/python -m benchmarks.campaign --runs 500 --seed 1 --jobs 2 --page docs/campaign.md

campaign-part: $(VENV)/tests-installed ## one run of each kind of fault, within five minutes
	$(BIN)/python -m benchmarks.campaign --seed 2 --minutes 3.5 --jobs 2 --fresh --folder runs/campaign-part

test-slurm: $(VENV)/tests-installed ## submit job scripts to a Slurm of one node, started in a temporary folder; skipped without Slurm
	$(BIN)/python -m tests.slurm.check

# In an environment of its own, so that .venv stays as it is. Not part of `test`: building mpi4py takes minutes.
test-system-mpi: ## run and replay on Debian's Open MPI with mpi4py built against it (installs it: needs root and apt-get)
	@if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "skipped: installing Debian's Open MPI needs root and apt-get"; else \
	  { apt-get -qq update && apt-get -qq install -y --no-install-recommends gcc libc6-dev libopenmpi-dev openmpi-bin; } >/dev/null && \
	  $(MAKE) --no-print-directory install VENV=.venv-system MPI=system MPICC=mpicc.openmpi && \
	  .venv-system/bin/areabench doctor && mkdir -p runs && \
	  .venv-system/bin/areabench launch $(DEMO) --set stop.horizon_s=2 --output runs/system-mpi.h5 --force && \
	  .venv-system/bin/areabench replay runs/system-mpi.h5; fi

# The tests of the report in a browser are skipped where there is none.
browser: ## install Debian's Chromium and its driver for the tests of the report (as root; elsewhere nothing is done)
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then :; \
	elif [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "note: no Chromium, and installing Debian's needs root and apt-get; the tests of the report in a browser are skipped"; \
	elif ! { apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium chromium-driver; } >/dev/null 2>&1; then \
	  echo "note: Debian's Chromium could not be installed; the tests of the report in a browser are skipped"; fi

# From the demo in virtual time, so that the picture is the same each time.
report-picture: browser $(VENV)/tests-installed $(SMALL_DEMO) ## draw docs/report.png: the report of the simulated demo in a browser
	@$(BIN)/areabench report runs/notebooks/demo -o runs/notebooks/report.html --force
	@$(BIN)/python -m tests.browser.screenshot runs/notebooks/report.html docs/report.png
