#!/usr/bin/env bash
# Run every training of this folder, one log a run, into the folder given: run_all.sh FOLDER [NAME…]
# PYTHON names an interpreter that has torch, tqdm, accelerate, mmengine, lightning, transformers and ultralytics.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$1; shift
names=("$@"); [ ${#names[@]} -gt 0 ] || names=(plain stamped imagenet tqdm tqdm_ms accelerate mmengine mmengine_10 lightning transformers ultralytics)
mkdir -p "$out"
export OMP_NUM_THREADS=1
for name in "${names[@]}"; do
    case $name in
        plain|stamped|imagenet|tqdm|tqdm_ms|accelerate) script=loops.py ;;
        *) script=frameworks.py ;;
    esac
    # The trainers have no slow logger injected; a run without one would be a second healthy one.
    for scenario in healthy compute slow_pool straggler checkpoint evaluation epoch_start slow_logging hidden; do
        [ "$script$scenario" != frameworks.pyslow_logging ] || continue
        # Ultralytics keeps its workers, and saves between two bars without a word: there is nothing to see.
        [[ $name != ultralytics || ! $scenario =~ ^(checkpoint|epoch_start)$ ]] || continue
        (cd "$(mktemp -d)" && "${PYTHON:-python3}" "$here/$script" "$name" "$scenario") >"$out/$name-$scenario.log" 2>&1 \
            || { echo "failed: $name $scenario" >&2; tail -3 "$out/$name-$scenario.log" >&2; }
    done
done
