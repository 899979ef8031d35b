#!/bin/bash
# 1 run of 'benchmarks/experiments/paper/paper.toml'.
# On 129 MPI ranks, each with a core of its own; the server is the first rank on the first node.
# Walltime: 120 s set-up + 0.5 s x 129 ranks + 1 run of 15 s in all (horizon x stretch of the clock) + 30 s per run to start and drain + 0.2 s x 151 snapshots to evaluate.
# Submit it with `qsub FILE` in the folder that the paths below start at.
#PBS -S /bin/bash
#PBS -N paper-area-1
#PBS -l select=1:ncpus=33:mpiprocs=33+3:ncpus=32:mpiprocs=32
#PBS -l place=scatter:excl
#PBS -l walltime=00:05:00
#PBS -r y
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit 1
module load python || exit 1
module load openmpi || exit 1
source .venv/bin/activate || exit 1
set -euo pipefail  # only now: the files of modules may use variables that are not set
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1  # one thread per rank
areabench="$(command -v areabench)"

run_file=runs/paper-area-1-mpi.h5
task=(run benchmarks/experiments/paper/paper.toml --output "$run_file")

# A job that is started again does not repeat a run that has ended, and resumes one that has a checkpoint.
#   An incomplete run without a checkpoint is kept under another name, and the run starts from the beginning.
if [ -e "$run_file" ]; then
  status=0
  "$areabench" check benchmarks/experiments/paper/paper.toml --ended-in "$run_file" || status=$?
  case "$status" in
    0) exit 0 ;;
    1) mv -v -- "$run_file" "${run_file%.h5}.incomplete-$(date +%Y%m%d-%H%M%S).h5"; rm -f -- "$run_file.checkpoint" ;;
    4) task=(resume "$run_file") ;;
    *) exit "$status" ;;
  esac
fi

# A minute before the walltime ends the run is told to write a checkpoint and stop (exit code 4).
timeout --foreground --preserve-status --signal=USR1 240 \
mpirun --hostfile "$PBS_NODEFILE" -n 129 --map-by core --bind-to core \
"$areabench" "${task[@]}" --progress never
