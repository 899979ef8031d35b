{{environment}}
set -euo pipefail  # only now: the files of modules may use variables that are not set
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1  # one thread per rank
areabench="$(command -v areabench)"

{{before}}
# A job that is started again continues: runs that are done are not repeated.
{{start}}"$areabench" {{command}} {{experiment}} --output {{output}} --progress never{{options}}
