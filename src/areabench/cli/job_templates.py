"""The texts of job scripts: one template per scheduler, and what both have in common below the directives.

`@name` stands for a value, `@@` for an @. A line that is empty once its values are filled in is left out.
"""

from __future__ import annotations

SLURM = """\
#!/bin/bash
@purpose
# Submit it with `sbatch FILE` in the folder that the paths below start at.
#SBATCH --job-name=@name
@placement
#SBATCH --nodes=@nodes
#SBATCH --ntasks=@tasks
@tasks_per_node
#SBATCH --cpus-per-task=@cores_per_task
#SBATCH --threads-per-core=1
@array
@estimate
#SBATCH --time=@walltime
@account
@partition
@memory
@exclusive
@signal
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=@log

cd "$SLURM_SUBMIT_DIR" || exit 1
@body
"""

PBS = """\
#!/bin/bash
@purpose
# Submit it with `qsub FILE` in the folder that the paths below start at.
#PBS -S /bin/bash
#PBS -N @name
@placement
#PBS -l select=@chunks
#PBS -l place=scatter@exclusive
@array
@estimate
#PBS -l walltime=@walltime
@account
@queue
#PBS -r y
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit 1
@body
"""

BODY = """\
@modules
@environment
set -euo pipefail  # only now: the files of modules may use variables that are not set
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1  # one thread per rank
areabench="$(command -v areabench)"

@work"""

# A sweep does not repeat runs that are done, so the same command starts it and continues it.
SWEEP = """\
# A job that is started again continues: runs that are done are not repeated.
@fresh_step
@launcher"$areabench" @command --progress never@jobs@share"""

RUN = """\
run_file=@run_file
task=(@command --output "$run_file")

# A job that is started again does not repeat a run that has ended, and resumes one that has a checkpoint.
#   An incomplete run without a checkpoint is kept under another name, and the run starts from the beginning.
if [ -e "$run_file" ]; then
  status=0
  "$areabench" check @experiment --ended-in "$run_file" || status=$?
  case "$status" in
    0) exit 0 ;;
    1) mv -v -- "$run_file" "${run_file%.h5}.incomplete-$(date +%Y%m%d-%H%M%S).h5"; rm -f -- "$run_file.checkpoint" ;;
    4) task=(@resume) ;;
    *) exit "$status" ;;
  esac
fi

@warning
@fresh_step
@launcher"$areabench" "${task[@@]}" --progress never"""

# MPICH names shared memory after job and step, and would wait for ever in what a killed start of the job has left.
FRESH_STEP = """\
# Each restart of the job takes a step of another number, away from shared memory that the last one left.
for ((restart = 0; restart < ${SLURM_RESTART_COUNT:-0}; restart++)); do srun --ntasks=1 true; done"""

# A shell handles a signal only when its command has ended, unless it waits for one in the background.
SLURM_WARNING = """\
# Runs a command, and passes on the signal that comes before the walltime ends.
passing_on() {
  local process="" warned="" status=0
  trap 'warned=yes; kill -USR1 $process 2>/dev/null || true' USR1
  "$@" &
  process=$!
  [ -z "$warned" ] || kill -USR1 "$process"  # it came before there was anything to pass it on to
  wait "$process" || status=$?  # a signal ends the waiting
  while kill -0 "$process" 2>/dev/null; do wait "$process" || true; done
  ((status < 128)) || { status=0; wait "$process" || status=$?; }
  return "$status"
}
"""

PBS_WARNING = "# PBS does not warn: the run is told to stop while there is time for its checkpoint."
