"""The names of schedulers, launchers and MPIs."""

from __future__ import annotations

SLURM, PBS = SCHEDULERS = ("slurm", "pbs")
SRUN, MPIRUN = LAUNCHERS = ("srun", "mpirun")
OPEN_MPI, MPICH = MPIS = ("openmpi", "mpich")
