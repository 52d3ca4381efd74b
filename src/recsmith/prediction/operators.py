"""Says which operators of PyTorch do work, of what kind and size; all others only arrange tensors.

A kernel's shape is the input of its model. For `gemm` it is (batch, m, k, n, left, right), the last two 1 if an operand
is transposed in memory. For embeddings it is (tables, ids, bags, columns of all tables, elements of them, way). For all
other kinds it is (bytes read, bytes written, pieces, run, way): pieces are inputs that are joined, rows that are
summed, or, of a transpose, how far apart in memory neighbours of the result were; run is the length of the row that a
kernel works on at a time, in elements, 0 if that does not matter; way is a number that separates kernels of a kind that
take different times for the same bytes.
"""

import math
from collections.abc import Sequence
from typing import Any

from recsmith.prediction.graph import KernelShape

Dims = Sequence[Any]

_NAMES = {
    "gemm": "aten::addmm aten::mm aten::bmm aten::baddbmm aten::addbmm "
    "aten::_scaled_dot_product_flash_attention_for_cpu aten::_scaled_dot_product_flash_attention_for_cpu_backward",
    "embedding_forward": "aten::_embedding_bag aten::_embedding_bag_forward_only aten::embedding",
    "embedding_backward": "aten::_embedding_bag_backward aten::embedding_dense_backward",
    "interaction": "aten::index aten::_index_put_impl_ aten::index_select aten::gather aten::scatter_add_ aten::tril "
    "aten::index_add_ aten::index_copy_",
    "concat": "aten::cat aten::stack",
    "copy": "aten::copy_ aten::fill_ aten::zero_",
    "elementwise": "aten::clamp_min aten::threshold_backward aten::mul aten::mul_ aten::add aten::add_ aten::sub "
    "aten::sub_ aten::rsub aten::div aten::div_ aten::neg aten::neg_ aten::sqrt aten::addcdiv_ aten::addcmul_ "
    "aten::lerp_ aten::where aten::maximum aten::minimum aten::abs aten::pow aten::clamp aten::gt aten::lt aten::ge "
    "aten::le aten::eq aten::ne aten::reciprocal aten::square aten::addcmul aten::masked_fill_ aten::masked_fill "
    "aten::relu_ aten::logical_and aten::bitwise_and",
    "exponential": "aten::sigmoid aten::sigmoid_backward aten::tanh aten::tanh_backward aten::exp aten::log aten::log2 "
    "aten::log_sigmoid_forward aten::log_sigmoid_backward aten::gelu aten::gelu_backward aten::silu "
    "aten::silu_backward aten::softplus aten::log1p aten::sin aten::cos aten::erf",
    "reduction": "aten::sum aten::amax aten::max aten::min aten::argmax aten::norm aten::linalg_vector_norm "
    "aten::cumsum aten::any aten::all",
    "softmax": "aten::_softmax aten::_softmax_backward_data aten::_log_softmax aten::_log_softmax_backward_data",
    "normalisation": "aten::native_layer_norm aten::native_layer_norm_backward aten::native_batch_norm "
    "aten::native_batch_norm_backward",
    "sparse": "fbgemm::permute_2D_sparse_data fbgemm::permute_1D_sparse_data fbgemm::asynchronous_complete_cumsum "
    "fbgemm::asynchronous_inclusive_cumsum fbgemm::bounds_check_indices fbgemm::block_bucketize_sparse_features "
    "fbgemm::expand_into_jagged_permute fbgemm::segment_sum_csr fbgemm::permute_multi_embedding "
    "fbgemm::permute_pooled_embs fbgemm::kt_regroup_arguments",
}  # fmt: skip
KIND_OF = {name: kind for kind, names in _NAMES.items() for name in names.split()}
KINDS = (*_NAMES, "transpose", "other")
_WAYS = (
    "",
    "aten::tanh aten::erf aten::gelu aten::silu aten::softplus aten::_softmax_backward_data aten::fill_ aten::zero_ "
    "aten::_log_softmax_backward_data aten::native_layer_norm_backward aten::native_batch_norm_backward "
    "aten::_index_put_impl_ aten::scatter_add_ fbgemm::asynchronous_complete_cumsum "
    "fbgemm::asynchronous_inclusive_cumsum aten::add_ aten::mul_ aten::sub_ aten::div_ aten::neg_ aten::addcdiv_ "
    "aten::addcmul_ aten::lerp_ aten::relu_ aten::masked_fill_",
    "aten::sigmoid_backward aten::tanh_backward aten::log_sigmoid_backward aten::gelu_backward aten::silu_backward "
    "aten::threshold_backward aten::clamp_min",
)  # operator names by way; all names that are not here have way 0
WAY_OF = {name: float(way) for way, names in enumerate(_WAYS) for name in names.split()}
WAYS = len(_WAYS)
ATTENTION = "aten::_scaled_dot_product_"  # prefix of the names of attention that is one operator
ADAGRAD = 1.0  # way of a backward lookup whose optimizer keeps sums of squares
ROWWISE = ("softmax", "normalisation", "concat", "reduction")  # kinds for which the length of a row matters
_ARRANGING = """
    view reshape _reshape_alias as_strided empty empty_like empty_strided new_empty new_zeros new_empty_strided t
    transpose permute expand select slice narrow unsqueeze squeeze detach detach_ to _to_copy lift_fresh resolve_conj
    resolve_neg numpy_T flatten unflatten _unsafe_view split split_with_sizes unbind chunk alias item contiguous clone
    _local_scalar_dense zeros ones zeros_like ones_like full result_type can_cast is_nonzero unsafe_split view_as
    unsafe_split_with_sizes expand_as size stride random_ uniform_ set_ resize_ record_stream is_pinned pin_memory
    dropout is_same_size as_strided_ arange tensor_split movedim swapaxes _has_same_storage_numel
"""  # operators of aten whose work is too small for a model
ARRANGING = frozenset(f"aten::{name}" for name in _ARRANGING.split())
BYTES = {"float": 4, "double": 8, "c10::Half": 2, "c10::BFloat16": 2, "long int": 8, "long": 8, "int": 4, "bool": 1,
         "unsigned char": 1, "signed char": 1, "short": 2}  # fmt: skip


def kind_of(name: str) -> str | None:
    """The kind of an operator's kernel; None if it has no kernel of its own, or is not known."""
    if name in KIND_OF:
        return KIND_OF[name]
    if name.startswith(("fbgemm::split_embedding_codegen_forward_", "fbgemm::dense_embedding_codegen_forward_")):
        return "embedding_forward" if name.endswith(("_cpu", "_cuda")) else None
    if name.startswith(("fbgemm::split_embedding_backward_codegen_", "fbgemm::dense_embedding_backward_codegen_")):
        return "embedding_backward" if name.endswith(("_cpu", "_cuda", "_exact_cuda")) else None
    return None


def is_arranging(name: str) -> bool:
    """Whether an operator without operators inside is known to do too little work for a model."""
    return name in ARRANGING or not name.startswith(("aten::", "fbgemm::")) or name.endswith(("_meta", "_pt2"))


def kernel_of(
    name: str, kind: str, dims: Dims, strides: Dims, types: Sequence[str], values: Sequence[str]
) -> KernelShape:
    """The kernel of an operator, from the dims, strides, element types and plain values of its inputs."""
    if kind == "gemm":
        shape = _gemm(name, dims, strides)
        return KernelShape("gemm", shape) if shape else _moved("other", name, dims, types)
    if kind.startswith("embedding"):
        shape = _embedding(name, kind, dims, values)
        return KernelShape(kind, shape) if shape else _moved("other", name, dims, types)
    if kind == "copy" and len(strides) > 1 and _rearranged(strides):
        kind = "transpose"
    if kind == "transpose":
        return _transposed(dims, strides, types)
    return _moved(kind, name, dims, types)


def _gemm(name: str, dims: Dims, strides: Dims) -> tuple[float, ...] | None:
    if name.startswith(ATTENTION):
        return _attention(name, dims)
    first = 1 if name in ("aten::addmm", "aten::baddbmm", "aten::addbmm") else 0
    try:
        left, right = list(dims[first]), list(dims[first + 1])
        turned = [float(len(strides[i]) > 1 and strides[i][-1] != 1) for i in (first, first + 1)]
        batch = float(left[0]) if len(left) == 3 else 1.0
        return (batch, float(left[-2]), float(left[-1]), float(right[-1]), *turned)
    except (IndexError, TypeError):
        return None


def _attention(name: str, dims: Dims) -> tuple[float, ...] | None:
    """Attention as one product: that of queries (batch, heads, places, columns) and keys, and that with values.

    The backward pass computes the first again, and four more.
    """
    behind = name.endswith("_backward")
    try:
        batch, heads, places, columns = map(float, dims[1 if behind else 0])
    except (IndexError, TypeError, ValueError):
        return None
    return (batch * heads, places, (5 if behind else 2) * columns, places, 0.0, 1.0)


def _embedding(name: str, kind: str, dims: Dims, values: Sequence[str]) -> tuple[float, ...] | None:
    """The shape of a lookup, from FBGEMM's inputs.

    The inputs are [gradient,] weights, offsets of weights (T), offsets of columns (T + 1), total columns, ... On a GPU
    there are two more kinds of weights and the places of each table's weights (T) after the first; offsets, ids and
    bags then come later as well. The inputs are those of FBGEMM 1.6 and 1.8. Returns None if they do not match.
    """
    sizes = [each[0] if len(each) == 1 and not isinstance(each[0], list) else 0 for each in dims]
    if len(dims) < 7 or not any(sizes):
        return None
    at, on_gpu = (0 if kind == "embedding_forward" else 1), name.endswith("_cuda")
    offset, later = (4, 3) if on_gpu else (1, 0)
    ids_at = (5 if kind == "embedding_forward" else 8) + later
    if len(sizes) <= ids_at + 1:
        return None
    weights, tables, ids, offsets = (float(sizes[i]) for i in (at, at + offset, ids_at, ids_at + 1))
    total = next((float(value) for value in values[3 + later : 4 + later] if value.isdigit()), 0.0)
    columns = float(dims[0][1]) if at and len(dims[0]) == 2 else total
    way = ADAGRAD if kind == "embedding_backward" and "adagrad" in name else 0.0
    return (tables, ids, max(offsets - 1, 0.0), columns, weights, way) if tables and offsets else None


def _rearranged(strides: Dims) -> bool:
    """Whether a copy reads in another order than it writes; strides[0] is the target's, strides[1] the source's."""
    target, source = list(strides[0]), list(strides[1])
    return len(source) == len(target) > 1 and sorted(range(len(source)), key=lambda i: -source[i]) != sorted(
        range(len(target)), key=lambda i: -target[i]
    )


def _moved(kind: str, name: str, dims: Dims, types: Sequence[str]) -> KernelShape:
    read = [(math.prod(each), BYTES.get(type_, 4)) for each, type_ in _tensors(dims, types)]
    total = float(sum(count * size for count, size in read))
    largest = float(max((count * size for count, size in read), default=0))
    run, way = _last_extent(dims) if kind in ROWWISE else 0.0, WAY_OF.get(name, 0.0)
    if kind == "concat":
        return KernelShape(kind, (total, total, float(len(read)), run, way))
    if kind == "copy":
        return KernelShape(kind, (total - largest if len(read) > 1 else 0.0, largest, 1.0, run, way))
    if kind == "reduction":
        shape = list(dims[0]) if dims and dims[0] and not isinstance(dims[0][0], list) else [1]
        return KernelShape(kind, (total, total / max(1.0, float(shape[0])), float(shape[0]), run, way))
    written = largest if not name.endswith("_index_put_impl_") else float(math.prod(read[-1]) if read else 0)
    return KernelShape(kind, (total, written, float(max(1, len(read))), run, way))


def _last_extent(dims: Dims) -> float:
    """The length of a row of the first tensor."""
    first = dims[0] if dims else []
    while first and isinstance(first[0], list):
        first = first[0]
    return float(first[-1]) if first else 0.0


def _transposed(dims: Dims, strides: Dims, types: Sequence[str]) -> KernelShape:
    """A copy into another order: how much of the source is read in one go, and the distance to its next part."""
    size = float(math.prod(dims[1]) * BYTES.get(types[1], 4))
    run, apart = 1.0, 1.0
    for extent, stride in zip(reversed(dims[1]), reversed(strides[1]), strict=True):
        if extent == 1:
            continue
        if stride != run:
            apart = float(stride)
            break
        run *= extent
    return KernelShape("transpose", (size, size, apart, run, 0.0))


def _tensors(dims: Dims, types: Sequence[str]) -> list[tuple[list[int], str]]:
    """Dims and element type of every tensor input, including those in lists; scalars have dims and type Scalar."""
    found: list[tuple[list[int], str]] = []
    for each, type_ in zip(dims, types, strict=False):
        if type_ == "TensorList" or (each and isinstance(each[0], list)):
            found += [(list(one), "float") for one in each]
        elif type_ and type_ not in ("Scalar", "ScalarList", "Device", "Layout", "") and each != []:
            found.append((list(each), type_))
    return found
