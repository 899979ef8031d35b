cd "${{folder}}" || exit 1
{{environment}}
set -euo pipefail  # only now: the files of modules may use variables that are not set
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1  # one thread per rank
areabench="$(command -v areabench)"

{{fresh_step}}
# A job that is started again continues: runs that are done are not repeated.
srun --mpi={{interface}} --cpu-bind=cores --distribution=block:block --kill-on-bad-exit=1 \
mpirun {{hosts}}-n {{ranks}} {{binding}} \
"$areabench" sweep {{experiment}} --progress never \
  --trials {{trials}} \
  --jobs {{jobs}} \
  --transport mpi {{on_ranks}} \
  --share "${{task}}/{{array}}" \
  --output {{output}}
