# MPICH names shared memory after job and step, and would wait for ever in what a killed start of the job has left: each
# restart takes a step of another number.
for ((restart = 0; restart < ${SLURM_RESTART_COUNT:-0}; restart++)); do srun --ntasks=1 true; done
