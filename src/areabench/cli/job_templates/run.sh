{{environment}}
set -euo pipefail  # only now: the files of modules may use variables that are not set
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1  # one thread per rank
areabench="$(command -v areabench)"

run_file={{output}}
task=({{command}} {{experiment}} --output "$run_file")

# A job that is started again does not repeat a run that has ended, and resumes one that has a checkpoint.
#   An incomplete run without a checkpoint is kept under another name, and the run starts from the beginning.
if [ -e "$run_file" ]; then
  status=0
  "$areabench" check {{experiment}} --ended-in "$run_file" || status=$?
  case "$status" in
    0) exit 0 ;;
    1) mv -v -- "$run_file" "${run_file%.h5}.incomplete-$(date +%Y%m%d-%H%M%S).h5"; rm -f -- "$run_file.checkpoint" ;;
    4) task=(resume "$run_file"{{options}}) ;;
    *) exit "$status" ;;
  esac
fi

{{before}}
{{start}}"$areabench" "${task[@]}" --progress never
