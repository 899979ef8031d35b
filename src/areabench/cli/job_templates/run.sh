cd "${{folder}}" || exit 1
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
    4) task=(resume "$run_file"{{trust}}) ;;
    *) exit "$status" ;;
  esac
fi

{{fresh_step}}
{{passing_on}}
# A minute before the walltime ends the run is told to write a checkpoint and stop (exit code 4).
{{pass_on}} \
timeout --foreground --preserve-status --signal=USR1 {{warned_after_s}} \
srun --mpi={{interface}} --cpu-bind=cores --distribution=block:block --kill-on-bad-exit=1 \
mpirun {{hosts}}-n {{ranks}} {{binding}} \
"$areabench" "${task[@]}" --progress never
