#!/bin/bash
# 560 runs of 'benchmarks/experiments/paper/tables/M_1_n_128_non_iid.toml'.
# Divided among 10 tasks.
# Walltime: 120 s set-up + 0.5 ms x 1,370,432 gradient steps (evaluation included) of 56 runs on 8 cores.
# Submit it with `qsub FILE` in the folder that the paths below start at.
#PBS -S /bin/bash
#PBS -N M_1_n_128_non_i
#PBS -l select=1:ncpus=8
#PBS -l place=scatter
#PBS -l walltime=00:04:00
#PBS -J 1-10
#PBS -r y
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit 1
module load python || exit 1
source .venv/bin/activate || exit 1
set -euo pipefail  # only now: the files of modules may use variables that are not set
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1  # one thread per rank
areabench="$(command -v areabench)"

# A job that is started again continues: runs that are done are not repeated.
"$areabench" sweep benchmarks/experiments/paper/tables/M_1_n_128_non_iid.toml --progress never \
  --jobs 8 \
  --share "$PBS_ARRAY_INDEX/10" \
  --output runs/M_1_n_128_non_iid
