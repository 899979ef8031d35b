# Measurements of areabench itself, on an idle machine.

.PHONY: bench-simulator bench-bits bench-cost bench-mpi bench-start bench-peers bench-privacy bench-launchers bench-report soak soak-fast

bench-simulator: $(VENV)/installed ## time the simulator against its bare gradient and its bare matrix products
	@$(BIN)/python benchmarks/perf/bench_simulator.py

bench-bits: $(VENV)/installed ## measure what portable bits cost: benchmarks/results/BITS.md (five minutes)
	@$(BIN)/python benchmarks/perf/bench_bits.py --output benchmarks/results/BITS.md

bench-cost: $(VENV)/installed ## measure time and memory against clients, parameters and local steps, as table and plot
	@$(BIN)/python benchmarks/perf/cost.py --output runs/cost

# The wheels of Open MPI and MPICH both contain an mpirun, so MPICH gets an environment of its own.
bench-mpi: $(VENV)/installed $(VENV)-mpich/installed ## time the MPI transport against a bare mpi4py loop, Open MPI and MPICH: benchmarks/results/MPI.md (six to eight minutes)
	@$(BIN)/python benchmarks/perf/bench_mpi.py --output benchmarks/results/MPI.md $(BIN)/python $(VENV)-mpich/bin/python

# Other frameworks get environments of their own in build/peers, 3 GB, made once. Torch is for one row of areabench.
bench-peers: $(VENV)/installed $(VENV)/torch-installed ## time areabench beside APPFL, FLGo, FLSim and Flower: benchmarks/results/PEERS.md (a quarter of an hour)
	@$(BIN)/python benchmarks/perf/bench_peers.py --torch '$(TORCH)' --output benchmarks/results/PEERS.md

bench-privacy: $(VENV)/installed ## measure what secure aggregation costs: benchmarks/results/PRIVACY.md (four minutes)
	@$(BIN)/python benchmarks/perf/bench_privacy.py --output benchmarks/results/PRIVACY.md

bench-start: $(VENV)/installed ## measure what each step of a start on 129 ranks takes of the processor (a minute)
	@$(BIN)/python benchmarks/perf/bench_start.py

bench-launchers: $(VENV)/installed $(VENV)-mpich/installed ## time what mpirun does when a rank dies or a signal comes, Open MPI and MPICH (two minutes)
	@$(BIN)/python benchmarks/perf/bench_launchers.py $(BIN)/python $(VENV)-mpich/bin/python

bench-report: $(VENV)/installed ## measure the time of the report of a sweep of 500 small runs, and the size of its page (seconds)
	@$(BIN)/python benchmarks/perf/bench_report.py

soak: $(VENV)/installed ## run 32 clients on MPI for an hour, watch memory, file and latency: benchmarks/results/SOAK.md
	@$(BIN)/python benchmarks/perf/soak.py --minutes 60 --clients 32 --rate 1000 --page benchmarks/results/SOAK.md

soak-fast: $(VENV)/installed ## the same for ten minutes at about the highest rate of two cores: benchmarks/results/SOAK_FAST.md
	@$(BIN)/python benchmarks/perf/soak.py --minutes 10 --clients 32 --rate 5000 --page benchmarks/results/SOAK_FAST.md

$(VENV)-mpich/installed: $(VENV)/created $(REQUIREMENTS)
	@echo "installing areabench and MPICH into $(VENV)-mpich"
	@"$(PYTHON)" -m venv --clear $(VENV)-mpich
	@$(VENV)-mpich/bin/python -m pip --disable-pip-version-check -qq install -c constraints.txt -e '.[mpich]'
	@touch $@
