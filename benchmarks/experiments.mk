# Experiments: the paper's tables and figures, the studies, and the search for the demo's step sizes.
# An interrupted sweep continues, and a changed file runs again only what it changed.

.PHONY: tables figures variants table-mpi study-rates study-bias study-methods study-leakage message-flow tune-demo

# TRIALS=1 gives a quick look, with runs, figures and page in a folder of its own.
TRIALS_FLAG := $(if $(TRIALS),--trials $(TRIALS))
TABLE_FILES := benchmarks/experiments/paper/tables
VARIANTS := $(wildcard $(TABLE_FILES)/*_100s.toml $(TABLE_FILES)/*_equal.toml)
TABLES := $(filter-out $(VARIANTS),$(wildcard $(TABLE_FILES)/M_*.toml))
TABLE_RUNS := runs/tables$(if $(TRIALS),-$(TRIALS))
RESULTS := $(if $(TRIALS),$(TABLE_RUNS),benchmarks/results)

tables: $(VENV)/installed ## regenerate the paper's eight tables: benchmarks/results/RESULTS.md (about an hour; TRIALS=1: a quick look)
	@echo "the eight tables"
	@$(BIN)/areabench sweep $(TABLES) --output $(TABLE_RUNS) $(TRIALS_FLAG)
	@echo "their variants: the printed horizon of n = 4, M = 50, and the equal-sized split"
	@$(BIN)/areabench sweep $(VARIANTS) --output $(TABLE_RUNS) $(TRIALS_FLAG)
	@$(MAKE) --no-print-directory figures
	@$(BIN)/python analysis/results_page.py $(patsubst $(TABLE_FILES)/%.toml,$(TABLE_RUNS)/%,$(TABLES) $(VARIANTS)) $(RESULTS)/RESULTS.md

figures: $(VENV)/installed ## draw the figures of that page from the runs of `make tables`
	@for table in M_1_n_128_non_iid M_50_n_128_non_iid; do \
	  $(BIN)/areabench figures $(TABLE_RUNS)/$$table --output $(RESULTS)/figures/$$table || exit; done
	@for table in M_1_n_4_non_iid M_1_n_128_non_iid; do \
	  $(BIN)/areabench figures --split $(TABLE_FILES)/$$table.toml --output $(RESULTS)/figures/$$table/labels || exit; done

# Points that the paper leaves open, beside the tables: one sweep each.
VARIANT_FILES := benchmarks/experiments/paper/variants
VARIANT_SWEEPS := $(wildcard $(VARIANT_FILES)/*.toml)
VARIANT_RUNS := runs/variants$(if $(TRIALS),-$(TRIALS))

variants: $(VENV)/installed ## run variants of what the paper leaves open: benchmarks/results/VARIANTS.md (an hour on one core; TRIALS=1: a quick look)
	@$(BIN)/areabench sweep $(VARIANT_SWEEPS) --output $(VARIANT_RUNS) $(TRIALS_FLAG)
	@$(BIN)/python analysis/variants_page.py $(patsubst $(VARIANT_FILES)/%.toml,$(VARIANT_RUNS)/%,$(VARIANT_SWEEPS)) \
	  $(if $(TRIALS),$(VARIANT_RUNS),benchmarks/results)/VARIANTS.md

# On an idle machine: other work takes the cores that the delays need. RANKS=3 puts the clients on two ranks.
TABLE_MPI := benchmarks/experiments/paper/tables_mpi/M_1_n_128_non_iid.toml
TABLE_MPI_RUNS := runs/table-mpi$(if $(TRIALS),-$(TRIALS))
TABLE_MPI_PAGES := $(if $(TRIALS),$(TABLE_MPI_RUNS),benchmarks/results)

table-mpi: $(VENV)/installed ## run one table of the paper in real time, 48 runs of 15 s: benchmarks/results/TABLE_MPI.md (a quarter of an hour)
	@$(BIN)/areabench sweep $(TABLE_MPI) --transport mpi $(if $(RANKS),--ranks $(RANKS)) --output $(TABLE_MPI_RUNS)/real $(TRIALS_FLAG)
	@$(BIN)/areabench sweep $(TABLE_MPI) --output $(TABLE_MPI_RUNS)/simulated $(TRIALS_FLAG)
	@$(BIN)/python analysis/table_mpi.py $(TABLE_MPI_RUNS)/real $(TABLE_MPI_RUNS)/simulated $(TABLE_MPI_PAGES)/TABLE_MPI.md

STUDY_FILES := benchmarks/experiments/studies
STUDY_RUNS := runs/studies$(if $(TRIALS),-$(TRIALS))
STUDY_PAGES := $(if $(TRIALS),$(STUDY_RUNS),benchmarks/results/studies)

study-rates: $(VENV)/installed ## measure the rates of the paper's two theorems: benchmarks/results/studies/RATES.md (a quarter of an hour)
	@$(BIN)/areabench sweep $(STUDY_FILES)/rates_*.toml --output $(STUDY_RUNS) $(TRIALS_FLAG)
	@$(BIN)/python analysis/study_rates.py $(STUDY_RUNS) $(STUDY_PAGES)/RATES.md

study-bias: $(VENV)/installed ## measure limits under uneven rates, and the best server rate: benchmarks/results/studies/BIAS.md (a quarter of an hour)
	@$(BIN)/areabench sweep $(STUDY_FILES)/bias_*.toml $(STUDY_FILES)/server_rate.toml --output $(STUDY_RUNS) $(TRIALS_FLAG)
	@$(BIN)/python analysis/study_bias.py $(STUDY_RUNS) $(STUDY_PAGES)/BIAS.md
	@$(BIN)/python analysis/study_methods.py limits $(STUDY_RUNS) $(STUDY_PAGES)/BIAS_METHODS.md

study-methods: $(VENV)/installed ## measure the rates of the methods in the paper's tables 1 and 2: benchmarks/results/studies/RATES_METHODS.md
	@$(BIN)/areabench sweep $(STUDY_FILES)/methods_*.toml --output $(STUDY_RUNS) $(TRIALS_FLAG)
	@$(BIN)/python analysis/study_methods.py rates $(STUDY_RUNS) $(STUDY_PAGES)/RATES_METHODS.md

# Runs and attacks in one process; a quick look goes where the others go. Torch is for the convolutional network.
study-leakage: $(VENV)/installed $(VENV)/torch-installed ## measure what a curious server finds in messages: benchmarks/results/studies/LEAKAGE.md (a quarter of an hour on one core)
	@$(BIN)/python analysis/study_leakage.py $(STUDY_PAGES)/LEAKAGE.md $(TRIALS_FLAG)

# The figures of docs/methods.md; any asynchronous method has the events of AREA's run.
FLOW := benchmarks/experiments/demo/message_flow.toml
FLOW_RUNS := runs/message-flow

message-flow: $(VENV)/installed ## draw who worked when in two small runs: docs/message-flow-*.svg (seconds)
	@$(BIN)/areabench simulate $(FLOW) --force --output $(FLOW_RUNS)/area.h5
	@$(BIN)/areabench simulate $(FLOW) --set method.name=s-fedavg --set method.step_size=0.05 \
	  --set method.clients_per_round=2 --force --output $(FLOW_RUNS)/s-fedavg.h5
	@$(BIN)/python analysis/message_flow.py $(FLOW_RUNS)/area.h5 $(FLOW_RUNS)/s-fedavg.h5 docs

tune-demo: $(VENV)/installed ## simulate the demo with seven step sizes per method, to choose from
	@$(BIN)/areabench sweep benchmarks/experiments/demo/tune_demo.toml
	@$(BIN)/areabench table runs/tune_demo --keep all
