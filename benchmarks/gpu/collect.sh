#!/usr/bin/env bash
# Measure a GPU: what its cost model is trained on, how plans fare on it, and training jobs (docs/measurements.md).
#
#   benchmarks/gpu/collect.sh cuda:h200 results                        # all steps
#   MINUTES=8 benchmarks/gpu/collect.sh cuda:h200 results samples      # one of them
#
# Steps: check, bandwidth, samples, kernels, plans, train, systems, captures. Each ends within MINUTES (8); given again,
# samples, plans, systems and captures go on where they were, in any process or copy of the folder. Every sample and visit
# is on the disk before the next one begins. train, systems and captures need TorchRec.
#
#   PYTHON   python3, which has torch, fbgemm_gpu and recsmith (or a PYTHONPATH with them)
#   SAMPLES  5000: nine in ten new cases, the tenth one measured again
#   CASES    --scale jobs --optimizers sgd,rowwise_adagrad
#   IDS      4194304, of the lookups of bandwidth
#   PLANS    further words of `recsmith bench sharding`, the same with which plans were made, such as --cost-model
set -euo pipefail
hardware=${1:?the hardware, such as cuda:h200} folder=${2:?a folder for the results}
shift 2
[ $# -gt 0 ] || set -- check bandwidth samples kernels plans train systems captures
budget=${MINUTES:-8}m
recsmith=("${PYTHON:-python3}" -m recsmith)
read -ra cases <<<"${CASES:---scale jobs --optimizers sgd,rowwise_adagrad}"
read -ra plans <<<"${PLANS:-}"
mkdir -p "$folder"

check() { "${recsmith[@]}" measure compute --hardware "$hardware" --check | tee "$folder/check.txt"; }

bandwidth() {
    "${PYTHON:-python3}" "$(dirname "$0")/bandwidth.py" --hardware "$hardware" --ids "${IDS:-4194304}" \
        --output "$folder/bandwidth.json"
}

samples() {
    "${recsmith[@]}" measure compute --hardware "$hardware" "${cases[@]}" --samples "${SAMPLES:-5000}" \
        --budget "$budget" --output "$folder/samples"
    "${recsmith[@]}" measure show "$folder/samples"
}

kernels() {
    "${PYTHON:-python3}" "$(dirname "$0")/kernels.py" "$folder/kernels.json" --hardware "$hardware" \
        --seconds "${KERNELS_S:-60}"
}

plans() {
    if [ ! -d "$folder/plans" ]; then
        echo "no plans in $folder/plans; make them where the planners are, with bench sharding --plan-only" >&2
        return
    fi
    "${recsmith[@]}" bench sharding --hardware "$hardware" "${plans[@]}" --budget "$budget" --output "$folder/plans" |
        tee "$folder/plans.txt"
}

benchmark() { timeout "$budget" "${PYTHON:-python3}" "$(dirname "$0")/../$1" "${@:2}"; }

train() {
    { benchmark train_exactness.py --jobs 1 && benchmark hand_written_loop.py --ranks 1; } | tee "$folder/train.txt"
}

systems() { # each system of training in a job of one rank; on `cpu` a rehearsal
    benchmark gpu/systems.py "$folder/systems" --device "${hardware%%:*}" | tee "$folder/systems.txt"
}

captures() { # one archive, since there are many files
    mkdir -p "$folder/captures"
    if [ -f "$folder/captures.tar.gz" ]; then tar --extract --gzip --file "$folder/captures.tar.gz" -C "$folder"; fi
    benchmark predict.py measure "$folder/captures" --gpu | tee "$folder/captures.txt" || true
    tar --create --gzip --file "$folder/captures.tar.gz" -C "$folder" captures
}

for step in "$@"; do
    case $step in
        check | bandwidth | samples | kernels | plans | train | systems | captures) "$step" ;;
        *)
            echo "no step is called '$step'; steps are check, bandwidth, samples, kernels, plans, train, systems, captures" >&2
            exit 2
            ;;
    esac
done
