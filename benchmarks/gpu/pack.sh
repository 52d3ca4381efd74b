#!/usr/bin/env bash
# Packs FBGEMM, TorchRec and pydantic for a GPU machine that reaches no package registry.
#
#     benchmarks/gpu/pack.sh [FOLDER] [SM] [KERNELS]      FOLDER: packed; SM: 90 (H100, H200), all: for every GPU;
#                                                         KERNELS: most, or few
#     python benchmarks/gpu/unpack.py FOLDER TARGET        there; then PYTHONPATH=TARGET:src python -m recsmith ...
#
# There: Python 3.12, PyTorch 2.11 for CUDA 13, and what else recsmith and TorchRec need. All of FBGEMM is kept but the
# kernels of batches of several sizes, of dense gradients and of global weight decay, with the device code of one kind of
# GPU. FOLDER gets parts of at most 18 MiB and their SHA-256, small enough that each travels beside the repository. Takes
# pip, xz, 6 GB of memory, 6 GB of disk and 5 minutes.
# With few kernels, all of it travels beside the repository at once. Those that stay are of sums and sequences without
# weights of ids, in fp32 and fp16, with gradients in fp32 and fp16, under SGD, Adagrad, row-wise Adagrad and Adam, and
# of data_parallel tables; what others would run ends with an illegal instruction. That takes pyarrow, too.
set -euo pipefail

folder=${1:-packed} sm=${2:-90} kernels=${3:-most}
dropped=(fbgemm_gpu_tbe_training_backward_vbe fbgemm_gpu_tbe_training_backward_gwd)
if [[ $kernels != few ]]; then dropped+=(fbgemm_gpu_tbe_training_backward_dense); fi
lookups='(split|dense)_embedding\w*' # what the names of kernels of lookups begin with
unused="$lookups((?<!un)weighted|vbe|gwd|lamb|lars|none_|with_counter|partial_rowwise|grad_indice_weights)"
unused+="|$lookups?_kernel\w*1?I.*(Float8_e4m3fn|BFloat16)|ssd_embedding|(?<!un)weighted_(vbe_|gwd_)*(v2_)?kernel"
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

download=(python3 -m pip download --quiet --dest "$work/wheels" --only-binary=:all: --python-version 3.12
    --implementation cp --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64)
"${download[@]}" --no-deps fbgemm-gpu==1.6.0 torchrec==1.6.1 tensordict pyvers torchmetrics==1.0.3 lightning-utilities
"${download[@]}" pydantic
python3 -m pip wheel --quiet --no-deps --wheel-dir "$work/wheels" iopath # which has no wheel

tree=$work/tree
for wheel in "$work"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$tree"; done
for name in "${dropped[@]}"; do
    rm "$tree/fbgemm_gpu/$name.so"
    sed -i "/^    \"$name\",$/d" "$tree/fbgemm_gpu/__init__.py" # the names that it loads, one a line
done
if [[ $sm != all ]]; then python3 "$here/one_architecture.py" "$sm" "$tree"/fbgemm_gpu/*.so; fi
if [[ $kernels == few ]]; then
    empty=(python3 "$here/without_kernels.py")
    "${empty[@]}" "$unused" "$tree"/fbgemm_gpu/*_training_{forward,backward,backward_dense}.so
    "${empty[@]}" . "$tree/fbgemm_gpu/fbgemm_gpu_tbe_inference.so" # TorchRec loads it, and training calls none of it
    "${empty[@]}" faster_hash "$tree/fbgemm_gpu/fbgemm_gpu_py.so"
fi
cp --recursive --sparse=always "$tree" "$work/sparse" # zeros become holes, which tar leaves out and unpacking too

mkdir -p "$folder"
rm -f "$folder"/fbgemm.?? "$folder/sha256"
tar --create --sparse --sort=name --owner=0 --group=0 --mtime=@0 --directory "$work/sparse" . |
    xz --threads=1 --lzma2=preset=9,dict=512MiB,lc=0,lp=4,pb=4 |
    split --bytes=18M --numeric-suffixes --suffix-length=2 - "$folder/fbgemm."
cd "$folder"
sha256sum fbgemm.?? > sha256
ls -l
