#!/bin/bash
# 560 runs of 'benchmarks/experiments/paper/tables/M_1_n_128_non_iid.toml'.
# Divided among 10 tasks.
# On 9 MPI ranks, each with a core of its own; the server is the first rank on the first node.
# Walltime: 120 s set-up + 0.5 s x 9 ranks + 56 runs of 840 s in all (horizon x stretch of the clock) + 30 s per run to start and drain + 0.2 s x 5,656 snapshots to evaluate.
# Submit it with `sbatch FILE` in the folder that the paths below start at.
#SBATCH --job-name=M_1_n_128_non_iid
#SBATCH --nodes=1
#SBATCH --ntasks=9
#SBATCH --cpus-per-task=1
#SBATCH --threads-per-core=1
#SBATCH --array=1-10
#SBATCH --time=01:03:00
#SBATCH --output=%x-%A_%a.out
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --open-mode=append

cd "$SLURM_SUBMIT_DIR" || exit 1
module load python || exit 1
module load openmpi || exit 1
source .venv/bin/activate || exit 1
set -euo pipefail  # only now: the files of modules may use variables that are not set
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1  # one thread per rank
areabench="$(command -v areabench)"

# A job that is started again continues: runs that are done are not repeated.
srun --mpi=pmix --cpu-bind=cores --distribution=block:block --kill-on-bad-exit=1 \
"$areabench" sweep benchmarks/experiments/paper/tables/M_1_n_128_non_iid.toml --progress never \
  --transport mpi --on-ranks \
  --share "$SLURM_ARRAY_TASK_ID/10" \
  --output runs/M_1_n_128_non_iid-mpi
