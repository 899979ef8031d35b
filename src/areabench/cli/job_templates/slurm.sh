#!/bin/bash
# {{what}}
# Divided among {{array}} tasks.
# On {{mpi_ranks}} MPI ranks, each with a core of its own; the server is the first rank on the first node.
# Walltime: {{estimate}}.
# Submit it with `sbatch FILE` in the folder that the paths below start at.
#SBATCH --job-name={{name}}
#SBATCH --nodes={{nodes}}
#SBATCH --ntasks={{ranks}}
#SBATCH --ntasks-per-node={{ranks_per_node}}
#SBATCH --cpus-per-task={{cores_per_rank}}
#SBATCH --threads-per-core=1
#SBATCH --array=1-{{array}}
#SBATCH --time={{walltime}}
#SBATCH --account={{account}}
#SBATCH --partition={{queue}}
#SBATCH --mem-per-cpu={{memory_mb}}M
#SBATCH --signal={{signal}}@60
#SBATCH --output={{log}}
#SBATCH --{{exclusive}}
#SBATCH --requeue
#SBATCH --open-mode=append
