#!/usr/bin/env bash
# What a GPU machine has to show, in under five minutes: parity of every row, bandwidths, the host's cost of an operation beside PyTorch, a run.
#   bench/gpu.sh            with the Python of the environment; PYTHON=... chooses another
# Results are printed as they come. Copy what you learned into bench/RESULTS.md: card, date, command, table.
set -u
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
unset GRADLAB_CUDA

section() {
    local start=$SECONDS
    printf '\n=== %s\n' "$1"
    shift
    "$@" 2>&1
    printf -- '--- exit %d after %d s\n' "$?" "$((SECONDS - start))"
}

section "this machine" "$python" -m gradlab info
section "parity of every row" timeout 120 "$python" -m pytest -q -p no:cacheprovider tests/test_cuda_rows.py --device cuda
section "bandwidth, as a fraction of a copy" timeout 60 "$python" bench/bandwidth.py
section "host cost of an operation beside PyTorch" timeout 60 "$python" bench/launch_cost.py
section "a training run" timeout 60 "$python" -m gradlab train digits --device cuda --epochs 5 --out "$(mktemp -d)/run"
