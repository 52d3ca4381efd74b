"""Trains a machine from measured kernels and captured steps: read, split, train each kind, judge, write."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from recsmith._types import Source
from recsmith.errors import UsageError
from recsmith.learning.preparation import check_output, import_training, split
from recsmith.prediction.kernels import LEARNED, KernelModel, geometric_error
from recsmith.prediction.kernels.times import KernelMeasurements, load_times
from recsmith.prediction.machine import (
    Curve,
    KernelScore,
    MachineCard,
    fit_curve,
    load_card,
    load_machine,
    save_machine,
)
from recsmith.prediction.overheads import Overheads, extract_overheads
from recsmith.prediction.traces import load_capture

LEAST_KERNELS = 30  # fewest kernels of a kind: fewer leave less than three to judge the model


def learn_kernels(data: Sequence[Source], traces: Sequence[Source], output: str, seed: int = 0) -> MachineCard:
    """Train the models of all kinds in files of kernel times, take overheads from captures, and write a machine.

    traces: captures of this machine; without any, overheads are those of machine cpu.

    Raises:
        UsageError: there are too few kernels of a kind, or the files are of several devices.
        MissingExtra: PyTorch is missing.
    """
    check_output(output)
    times = _joined([load_times(each) for each in data])
    overheads = _overheads(traces)
    training = import_training("recsmith.learning.kernels.training")
    models: dict[str, KernelModel] = {}
    scores: list[KernelScore] = []
    for kind in LEARNED:
        rows = [each for each in times.kernels if each.kind == kind]
        if len(rows) < LEAST_KERNELS:
            if kind in ("gemm", "elementwise"):
                raise UsageError(
                    f"{len(rows)} kernels of kind {kind}; training takes at least {LEAST_KERNELS}: measure more"
                )
            continue
        shapes, seconds = np.array([each.shape for each in rows]), np.array([each.seconds for each in rows])
        between = np.array([each.between for each in rows])
        train, choose, judge = split(np.arange(len(rows), dtype=np.int64), seed)
        model = training.train_kind(kind, shapes, between, seconds, train, choose, seed)
        models[kind] = model
        scores.append(
            KernelScore(
                kind=kind, trained=int(train.sum()), held_out=int(judge.sum()),
                error=geometric_error(model.seconds(shapes[judge], between[judge]), seconds[judge]),
                roofline_error=geometric_error(model.roofline(shapes[judge]), seconds[judge]),
            )
        )  # fmt: skip
    digest = hashlib.sha256(repr((times.kernels, times.collectives)).encode()).hexdigest()
    card = MachineCard(device=times.device, versions=times.versions, seed=seed, data=digest, kernels=tuple(scores),
                       curves=curves_of(times), overheads=overheads)  # fmt: skip
    save_machine(output, models, card)
    load_machine(Path(output))
    return card


def _joined(parts: Sequence[KernelMeasurements]) -> KernelMeasurements:
    devices = sorted({part.device for part in parts})
    if len(devices) != 1:
        raise UsageError(f"the kernel times are of {len(devices)} devices ({', '.join(devices)}); learn each by itself")
    return replace(parts[0], kernels=tuple(each for part in parts for each in part.kernels),
                   collectives=tuple(each for part in parts for each in part.collectives))  # fmt: skip


def _overheads(traces: Sequence[Source]) -> Overheads:
    if not traces:
        return load_card("cpu").overheads
    return extract_overheads([load_capture(each).graph for each in traces], f"{len(traces)} captures")


def curves_of(times: KernelMeasurements) -> tuple[Curve, ...]:
    """A curve of each collective and number of ranks; UsageError if one has too few sizes."""
    curves: list[Curve] = []
    for name, ranks in sorted({(each.name, each.ranks) for each in times.collectives}):
        rows = [each for each in times.collectives if (each.name, each.ranks) == (name, ranks)]
        size, seconds = np.array([each.bytes for each in rows]), np.array([each.seconds for each in rows])
        curves.append(fit_curve(name, ranks, size, seconds))
    return tuple(curves)
