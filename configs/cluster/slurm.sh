#!/bin/bash
# A run on several hosts under Slurm: each task of the step is a rank.
#
#   sbatch configs/cluster/slurm.sh sft configs/sft.yaml mesh.fsdp=8
#
# The hosts see this directory, the model's and output_dir under the same paths. Of torchrun's variables
# each task gets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and nothing else is needed.
# Submitted again, the same command goes on from the newest checkpoint.
#SBATCH --job-name=temper
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@300
#SBATCH --output=%x-%j.log
set -euo pipefail

if [ $# -lt 2 ]; then
  echo "usage: sbatch $0 VERB CONFIG [dotted.key=value ...]" >&2
  exit 2
fi
TEMPER=${TEMPER:-build/temper} # the program on every host

hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export MASTER_ADDR=${hosts%%$'\n'*} # the first one
# Two jobs that share a host have different ports.
export MASTER_PORT=${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 20000))}
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}

# --signal=TERM@300 reaches the ranks five minutes before the time is up: they save and end, with status
# 143 where a failure has 1. A rank that fails ends the others by itself; --kill-on-bad-exit is for one that
# cannot.
# The variables are the task's, not this script's.
# shellcheck disable=SC2016
exec srun --kill-on-bad-exit=1 bash -c '
  export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID
  export LOCAL_WORLD_SIZE=${SLURM_NTASKS_PER_NODE:-1}
  exec "$@"' rank "$TEMPER" "$@"
