#!/bin/bash
# 560 runs of 'benchmarks/experiments/paper/tables/M_1_n_128_non_iid.toml'.
# Divided among 10 tasks.
# Walltime: 120 s set-up + 0.5 ms x 1,370,432 gradient steps (evaluation included) of 56 runs on 8 cores.
# Submit it with `sbatch FILE` in the folder that the paths below start at.
#SBATCH --job-name=M_1_n_128_non_iid
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --threads-per-core=1
#SBATCH --array=1-10
#SBATCH --time=00:04:00
#SBATCH --output=%x-%A_%a.out
#SBATCH --requeue
#SBATCH --open-mode=append

cd "$SLURM_SUBMIT_DIR" || exit 1
module load python || exit 1
source .venv/bin/activate || exit 1
set -euo pipefail  # only now: the files of modules may use variables that are not set
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1  # one thread per rank
areabench="$(command -v areabench)"

# A job that is started again continues: runs that are done are not repeated.
"$areabench" sweep benchmarks/experiments/paper/tables/M_1_n_128_non_iid.toml --progress never \
  --jobs 8 \
  --share "$SLURM_ARRAY_TASK_ID/10" \
  --output runs/M_1_n_128_non_iid
