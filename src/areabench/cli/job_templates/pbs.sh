#!/bin/bash
{{purpose}}
# Submit it with `qsub FILE` in the folder that the paths below start at.
#PBS -S /bin/bash
{{directives}}
#PBS -r y
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit 1
