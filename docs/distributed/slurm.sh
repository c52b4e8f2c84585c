#!/bin/bash
#SBATCH --job-name=digits
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=4
#SBATCH --time=02:00:00
#SBATCH --requeue
# Eight processes on each of four machines. A job that is requeued after a machine was lost goes on from its last checkpoint.
set -euo pipefail
export OMP_NUM_THREADS="$SLURM_CPUS_PER_TASK" OPENBLAS_NUM_THREADS="$SLURM_CPUS_PER_TASK"
run="runs/digits-$SLURM_JOB_ID"

if compgen -G "$run/checkpoints/checkpoint-*.safetensors" > /dev/null; then
    srun --mpi=pmix gradlab train --resume "$run"
else
    srun --mpi=pmix gradlab train digits --epochs 50 --out "$run"
fi
