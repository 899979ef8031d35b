#!/bin/bash
{{purpose}}
# Submit it with `sbatch FILE` in the folder that the paths below start at.
{{directives}}
#SBATCH --requeue
#SBATCH --open-mode=append

cd "$SLURM_SUBMIT_DIR" || exit 1
