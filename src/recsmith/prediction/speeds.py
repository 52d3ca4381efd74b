"""How fast a rank computes: the one source for every price of a training job.

A rank on CPU is a core of the shipped machine `cpu`, whose kernels were measured (`recsmith measure kernels`) and
learned (`recsmith learn kernels`); docs/predict.md states their errors. The speed of GPUs is assumed. B samples of a
rank, i inputs and o outputs of a layer
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from recsmith.jobs.machine import processor_flags
from recsmith.prediction.dense_shapes import Shapes
from recsmith.prediction.kernels import within_step
from recsmith.prediction.machine import Machine, load_machine
from recsmith.prediction.models.build import tape_of
from recsmith.prediction.models.step import Step, gemm, linear, relu
from recsmith.prediction.models.templates import dots
from recsmith.units import counted, format_time

CORE = "cpu"  # the shipped machine
GPU_FLOPS = 1e13  # products and sums per second of a GPU in fp32: assumed
LARGE = 512  # rows and columns of a product whose speed stands for that of all large products

# Products in bf16 compared with fp32 (benchmarks/bf16_products.py): factors by the processor's unit, and seconds that
# each layer adds. The unit with tiles (amx) was measured in one job alone, whose gain was larger than this.
BF16_UNITS = ("amx_bf16", "avx512_bf16")
BF16_BY_UNIT, BF16_WITHOUT, BF16_CASTS_S = 0.5, 2.35, 1.3e-4


@lru_cache(maxsize=1)
def core() -> Machine:
    """The shipped machine, of which a rank on CPU is a core."""
    return load_machine(CORE)


@lru_cache(maxsize=2)
def flops_per_s(kind: str) -> float:
    """Products and sums in fp32 per second of a rank, in large matrix products. kind: cpu or cuda."""
    if kind != "cpu":
        return GPU_FLOPS
    [seconds] = core().kernels.seconds(within_step([gemm(1, LARGE, LARGE, LARGE, 0, 1)])).tolist()
    return 2 * LARGE**3 / seconds


def bytes_per_s() -> float:
    """Bytes that an element-wise operator moves in a second on a core."""
    return float(1 / np.exp(core().kernels.models["elementwise"].base[1]))


def call_s() -> float:
    """Seconds of an operator on a core in addition to its work."""
    return float(np.exp(core().kernels.models["elementwise"].base[0]))


def layers_s(shapes: Shapes, batch_size: int, pairs: tuple[int, int] | None = None) -> float:
    """Seconds of the forward and backward pass of dense layers on a core, with the host's work between kernels.

    shapes: those of the parameters; each matrix (o, i) is a linear layer and a rectifier. pairs: number of features,
    and columns, of which the model takes products of all pairs, as DLRM does.
    """
    matrices = tuple((shape[0], _product(shape[1:])) for shape in shapes if len(shape) > 1)
    return _layers_s(matrices, batch_size, pairs)


@lru_cache(maxsize=256)
def _layers_s(matrices: tuple[tuple[int, int], ...], batch_size: int, pairs: tuple[int, int] | None) -> float:
    step = Step()
    for outward, inward in matrices:
        linear(step, batch_size, inward, outward)
        relu(step, batch_size * outward)
    if pairs is not None:
        dots(step, *pairs, batch_size)
    step.backward()
    return sum(event.seconds for event in tape_of(step.ops, core()))


def bf16_layers_s(fp32_s: float, shapes: Shapes) -> float:
    """Seconds of dense layers with products in bf16, on this processor. fp32_s: their seconds in fp32."""
    return _bf16_factor() * fp32_s + BF16_CASTS_S * sum(len(shape) > 1 for shape in shapes)


def bf16_unit() -> str | None:
    """The processor's unit for products in bf16, by Linux' name; None if it has none."""
    return next((each for each in BF16_UNITS if each in processor_flags()), None)


def bf16_line(layers_s: float, matrices: int) -> str:
    """A line that says first whether products in bf16 pay on this processor, compared with fp32.

    layers_s: seconds of a step that dense layers take in bf16. matrices: number of linear layers.
    """
    fp32_s = (layers_s - BF16_CASTS_S * matrices) / _bf16_factor()
    more = layers_s - fp32_s
    pays = "longer" if more > 0 else "less"
    unit, units = bf16_unit(), " or ".join(reversed(BF16_UNITS))
    has = f"lacks {units}" if unit is None else f"has {unit}"
    return (
        f"dense layers take {format_time(abs(more))} {pays}, {format_time(layers_s)} of a step in place of "
        f"{format_time(fp32_s)} in fp32{': leave it out' if more > 0 else ''}; this processor {has}, so products take "
        f"{_bf16_factor():g} times those in fp32, and casts {format_time(BF16_CASTS_S)} more for each of "
        f"{counted(matrices, 'layer')}"
    )


@lru_cache(maxsize=1)
def _bf16_factor() -> float:
    return BF16_WITHOUT if bf16_unit() is None else BF16_BY_UNIT


def _product(sizes: Sequence[int]) -> int:
    made = 1
    for size in sizes:
        made *= size
    return made
