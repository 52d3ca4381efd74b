#!/usr/bin/env bash
# Packs FBGEMM and pydantic for a GPU machine that reaches no package registry.
#
#     benchmarks/gpu/pack.sh [FOLDER] [SM]      FOLDER: packed; SM: 90 (H100, H200); all: for every GPU, twice the size
#     python benchmarks/gpu/unpack.py FOLDER TARGET        there; then PYTHONPATH=TARGET:src python -m recsmith ...
#
# There: Python 3.12, PyTorch 2.11 for CUDA 13, and what else recsmith needs. Kept of FBGEMM: all its Python, and the
# libraries behind the tables of src/recsmith/hardware/fused_tables.py, with the device code of one kind of GPU. FOLDER gets
# parts of at most 45 MiB (one of 44 MiB; three for "all") and their SHA-256. Takes pip, xz, 6 GB of memory, 5 GB of disk
# and 3 minutes.
set -euo pipefail

folder=${1:-packed} sm=${2:-90}
kept=" asmjit fbgemm fbgemm_gpu_config fbgemm_gpu_sparse_async_cumsum fbgemm_gpu_tbe_common fbgemm_gpu_tbe_utils
 fbgemm_gpu_tbe_training_forward fbgemm_gpu_tbe_training_backward fbgemm_gpu_tbe_training_backward_pt2 "
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

download=(python3 -m pip download --quiet --dest "$work/wheels" --only-binary=:all: --python-version 3.12
    --implementation cp --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64)
"${download[@]}" --no-deps fbgemm-gpu==1.6.0
"${download[@]}" pydantic

tree=$work/tree
for wheel in "$work"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$tree"; done
for path in "$tree"/fbgemm_gpu/*.so; do
    name=$(basename "$path" .so)
    if [[ ${kept//$'\n'/} != *" $name "* ]]; then
        rm "$path"
        sed -i "/^    \"$name\",$/d" "$tree/fbgemm_gpu/__init__.py" # the names that it loads, one a line
    fi
done
if [[ $sm != all ]]; then python3 "$here/one_architecture.py" "$sm" "$tree"/fbgemm_gpu/*.so; fi
cp --recursive --sparse=always "$tree" "$work/sparse" # zeros become holes, which tar leaves out and unpacking too

mkdir -p "$folder"
rm -f "$folder"/fbgemm.?? "$folder/sha256"
tar --create --sparse --sort=name --owner=0 --group=0 --mtime=@0 --directory "$work/sparse" . |
    xz --threads=1 --lzma2=preset=4,dict=512MiB |
    split --bytes=45M --numeric-suffixes --suffix-length=2 - "$folder/fbgemm."
cd "$folder"
sha256sum fbgemm.?? > sha256
ls -l
