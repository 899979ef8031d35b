#!/bin/bash
# 560 runs of 'benchmarks/experiments/paper/tables/M_1_n_128_non_iid.toml'.
# Divided among 10 tasks.
# On 9 MPI ranks, each with a core of its own; the server is the first rank on the first node.
# Walltime: 120 s set-up + 0.5 s x 9 ranks + 56 runs of 840 s in all (horizon x stretch of the clock) + 30 s per run to start and drain + 0.2 s x 5,656 snapshots to evaluate.
# Submit it with `qsub FILE` in the folder that the paths below start at.
#PBS -S /bin/bash
#PBS -N M_1_n_128_non_i
#PBS -l select=1:ncpus=9:mpiprocs=9
#PBS -l place=scatter:excl
#PBS -l walltime=01:03:00
#PBS -J 1-10
#PBS -r y
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit 1
module load python || exit 1
module load openmpi || exit 1
source .venv/bin/activate || exit 1
set -euo pipefail  # only now: the files of modules may use variables that are not set
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1  # one thread per rank
areabench="$(command -v areabench)"

# A job that is started again continues: runs that are done are not repeated.
mpirun --hostfile "$PBS_NODEFILE" -n 9 --map-by core --bind-to core \
"$areabench" sweep benchmarks/experiments/paper/tables/M_1_n_128_non_iid.toml --progress never \
  --transport mpi --on-ranks \
  --share "$PBS_ARRAY_INDEX/10" \
  --output runs/M_1_n_128_non_iid-mpi
