#!/bin/bash
# {{what}}
# Divided among {{array}} tasks.
# On {{mpi_ranks}} MPI ranks, each with a core of its own; the server is the first rank on the first node.
# Walltime: {{estimate}}.
# Submit it with `qsub FILE` in the folder that the paths below start at.
#PBS -S /bin/bash
#PBS -N {{name}}
#PBS -l select={{chunks}}
#PBS -l place={{place}}
#PBS -l walltime={{walltime}}
#PBS -J 1-{{array}}
#PBS -A {{account}}
#PBS -q {{queue}}
#PBS -r y
#PBS -j oe
