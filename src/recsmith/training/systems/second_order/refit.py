"""Fits the last layer, or all dense layers, of a trained model to other data, by a second-order method.

    recsmith refit runs/first --data clicks/today.parquet

The inputs of these layers are computed once and kept, so the data are read once. The new layers are held near the old
ones: damping / 2 times the squared distance is added to the loss. For the last layer this problem is convex, and the
gradient bounds the remaining error: a loss with curvature of at least `damping` is at most |gradient|^2 / (2 damping)
above its minimum.

n samples
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recsmith.data import Batch
from recsmith.errors import RecSmithError, UsageError
from recsmith.files import Source, encode, source_text
from recsmith.scoring.scores import Scores
from recsmith.training.batches import as_tensors
from recsmith.training.job.card import ModelCard, read_card, trained_model
from recsmith.training.job.export import export_changed
from recsmith.training.results.asked_data import read_as_run
from recsmith.training.results.copies import (
    batches_like,
    check_classes,
    check_target,
    check_useful,
    entropy_of,
    origin_of,
    scored,
)
from recsmith.training.results.serving import Predictor, load_model
from recsmith.training.sources import open_data
from recsmith.training.systems.second_order.dance import DanceSettings, newton, stages
from recsmith.training.systems.second_order.flat import DampedLoss, FlatLayers
from recsmith.training.systems.second_order.progressive_lbfgs import ProgressiveLbfgs
from recsmith.training.systems.second_order.refit_layers import LAYERS, size_of
from recsmith.training.systems.second_order.settings import RefitSettings, Refitted

REFIT = "refit"  # name of the output folder, next to `model`
FOLDS = 5  # folds of the samples, of which one is held out to choose a damping
DAMPINGS = (1e-1, 1e-2, 1e-3, 1e-4)  # values that are tried; with a smaller one the bound would be useless
LEAST_SAMPLES = 1000  # for all dense layers: damping holds the weights that samples do not determine
FIRST = 4096  # samples of the first stage
LEAST = {"last": 1e-4, "dense": 1e-3}  # norm of the gradient at which fitting ends
NEWTON = {"last": DanceSettings(inner=200, newton=50), "dense": DanceSettings(inner=10, newton=10)}
BENT = 8192  # samples from which the Hessian of all dense layers is computed
MOST_STEPS = 300  # of progressive L-BFGS
Say = Callable[[str], object]


def refit(
    folder: Source, data: Any, *, settings: RefitSettings | None = None, test: Any = None, output: Source | None = None,
    force: bool = False, on_progress: Say | None = None,
) -> tuple[Refitted, dict[str, Scores]]:  # fmt: skip
    """Fit layers of the model in a run's folder to other data, and export the new model next to the old one.

    Args:
        folder: of a run, whose `model` is not changed; or of a model, such as a copy.
        data: a path or a spec; its values must mean the same as those of the model's training data.
        settings: which layers are fitted, by which method, and how near to the old ones.
        test: data on which both models are scored.
        output: folder of the new model; None: `refit` in the folder of the run.
        force: whether to replace an output folder that holds something else.
        on_progress: called with lines that report the progress.

    Returns:
        (record of the fit, scores on `test` of the `old` and the `new` model).

    Raises:
        UsageError: the folder holds no trained model; the data means something else, has one class, or too few
            samples; the loss is not finite; the output is the model, or something else.
        RecSmithError: the old layers, or the mean label, are as good on these data, or fitting did not end near the
            least loss. Nothing is written then.
    """
    settings, say = settings or RefitSettings(), on_progress or (lambda _: None)
    model = trained_model(folder)
    target = model.parent / REFIT if output is None else Path(source_text(output, "an output"))
    check_target(target, model, force=force, made="refit", what="model that was fitted again")
    card = read_card(model)
    _check_card(card, settings)
    predictor, dataset = load_model(model), open_data(read_as_run(data, model), "--data")
    if dataset.schema.weight is not None:
        raise UsageError(
            f"--data weighs its samples by '{dataset.schema.weight}', and refit counts all alike; leave weight out"
        )
    batches = batches_like(card, dataset, "--data", samples=settings.samples)
    tested = None if test is None else list(batches_like(card, open_data(read_as_run(test, model), "--test"), "--test"))
    scores = {} if tested is None else {"old": scored(predictor, tested)}
    seen = _cached(predictor, batches, settings, say)
    refitted = _fitted(seen, settings, say)
    changed = _changed(predictor, seen.names, seen.layers)
    if tested is not None:
        scores["new"] = scored(predictor, tested)
    found = {name: encode(each) for name, each in scores.items()}
    origin = origin_of(folder, model, data, dataset)
    export_changed(model, target, changed, {"refit": encode(refitted), "test": found.get("new"), "origin": origin})
    return refitted, scores


def _check_card(card: ModelCard, settings: RefitSettings) -> None:
    if settings.layers == "dense" and card.model.precision == "bf16":
        raise UsageError(
            "model.precision is bf16, whose losses are too coarse to compare for all dense layers; give --layers last"
        )
    if settings.layers == "dense" and card.columns is not None:
        raise UsageError("the model sees a part of its embeddings' columns (comms.pooled); give --layers last")


@dataclass(frozen=True)
class SeenData:
    """The samples, as inputs of the layers that are fitted.

    names: of the layers' parameters in the model. parts: of each batch, the samples that are fitted to. held: of each
    batch, the held-out fifth sample of five. corrupt: number of samples that were left out. entropy: log loss of always
    predicting the mean label.
    """

    names: dict[str, str]
    layers: FlatLayers
    parts: list[Any]
    held: list[Any]
    corrupt: int
    entropy: float


def _cached(predictor: Predictor, batches: Iterator[Batch], settings: RefitSettings, say: Say) -> SeenData:
    """Compute the inputs of the layers for all samples.

    Raises:
        UsageError: there are no samples or too few, all have one label, or the model does not end in a linear layer.
    """
    made: Any = None
    parts, held, labels, corrupt = list[Any](), list[Any](), list[torch.Tensor](), 0
    for batch in batches:
        corrupt += batch.corrupt
        if not len(batch):
            continue
        predictor.check(batch)
        if made is None:
            made = LAYERS[settings.layers](predictor.task, as_tensors(batch, predictor.features))
        out = np.arange(len(batch)) % FOLDS == FOLDS - 1
        for kept, rows in ((parts, np.flatnonzero(~out)), (held, np.flatnonzero(out))):
            if len(rows):
                kept.append(made.part(as_tensors(batch.take(rows), predictor.features)))
        labels.append(torch.from_numpy(batch.labels))
    if made is None:
        raise UsageError("--data has no samples; give data to fit the model to")
    whole, weights = torch.cat(labels), sum(each.numel() for each in made.layers.parameters.values())
    check_classes(whole, predictor.schema.labels)
    needed = weights if settings.layers == "last" else min(weights, LEAST_SAMPLES)
    if len(whole) < needed:
        raise UsageError(
            f"--data has {len(whole):,} samples, which are too few to tell {weights:,} weights; give {needed:,} or more"
        )
    left = f"; {corrupt:,} corrupt ones were left out" if corrupt else ""
    say(f"{len(whole):,} samples read once{left}; fitting {made.fitted}")
    return SeenData(made.names, made.layers, parts, held, corrupt, entropy_of(whole))


def _fitted(seen: SeenData, settings: RefitSettings, say: Say) -> Refitted:
    layers, parts = seen.layers, [*seen.parts, *seen.held]
    start, sizes = layers.weights(), [size_of(part) for part in parts]
    before = layers.loss(start, parts)
    if not math.isfinite(before):
        raise UsageError("the model's loss on --data is not finite; look at its values (recsmith data check)")
    damping, tried = (settings.damping, {}) if settings.damping is not None else _picked(seen, start, settings, say)
    damped = DampedLoss(layers, parts, damping, start)
    failed = SOLVE[settings.method](damped, sizes, settings, say)
    reached = float(damped.gradient(layers.weights())[1].norm())
    layers.put(layers.weights().float().to(start.dtype))  # the precision in which the weights will be written
    loss, slope = damped.gradient(layers.weights())
    norm, after = float(slope.norm()), layers.loss(layers.weights(), parts)
    _check_fit(before, after, reached, settings)
    check_useful(after, seen.entropy, "the fitted model")
    say(f"loss {before:.5f} -> {after:.5f}; gradient {norm:.2e}" + (", where a line search ended" if failed else ""))
    return Refitted(
        settings=settings, samples=sum(sizes), loss_before=before, loss=after, damped=loss, norm=norm,
        bound=norm * norm / (2 * damping) if settings.layers == "last" else None,
        passes=layers.visited / sum(sizes), damping=damping, tried=tried, corrupt=seen.corrupt,
    )  # fmt: skip


def _picked(seen: SeenData, start: torch.Tensor, settings: RefitSettings, say: Say) -> tuple[float, dict[str, float]]:
    """(the damping whose layers, fitted to four fifths of the samples, are best on the rest; held-out losses).

    Values are tried from the largest on, each from the layers of the one before, until the held-out loss rises.

    Raises:
        RecSmithError: the old layers have the lowest held-out loss.
    """
    layers, sizes = seen.layers, [size_of(part) for part in seen.parts]
    tried = {"old": layers.loss(start, seen.held)}
    for damping in DAMPINGS:
        _by_newton(DampedLoss(layers, seen.parts, damping, start), sizes, settings, lambda _: None)
        tried[f"{damping:g}"] = layers.loss(layers.weights(), seen.held)
        if not tried[f"{damping:g}"] <= min(tried.values()):
            break
    layers.put(start)
    best = min((name for name, loss in tried.items() if math.isfinite(loss)), key=lambda name: tried[name])
    if best == "old":
        said = ", ".join(f"{name}: {loss:.5f}" for name, loss in tried.items())
        raise RecSmithError(
            f"a fifth of the samples was held out, and likes the old layers best (log loss by damping: {said}); "
            "nothing was written: give more samples, or a damping, which is taken as it is"
        )
    say(f"damping {best}: log loss {tried[best]:.5f} on a held-out fifth, {tried['old']:.5f} before")
    return float(best), tried


def _check_fit(before: float, after: float, norm: float, settings: RefitSettings) -> None:
    """Raise RecSmithError if no step lowered the loss, or fitting did not end near its minimum."""
    least = 10 * LEAST[settings.layers]
    if not after < before and not norm <= least:
        raise RecSmithError(
            f"no step lowers the loss of {before:.6g} on these data, whose gradient has norm {norm:.3g}; nothing was "
            "written: give more samples, or a larger damping"
        )
    if settings.layers == "last" and not norm <= least:
        raise RecSmithError(
            f"fitting ended with a gradient of norm {norm:.3g}, where {least:g} is the limit, so the loss may be far "
            "from its least; nothing was written: look at the values of --data (recsmith data check), or give a larger "
            "damping"
        )


def _prefix(sizes: Sequence[int], wanted: int) -> tuple[int, int]:
    """(number of first parts that hold at least the wanted samples, samples in them)."""
    count = 0
    for number, size in enumerate(sizes):
        count += size
        if count >= wanted:
            return number + 1, count
    return len(sizes), count


def _by_newton(damped: DampedLoss, sizes: list[int], settings: RefitSettings, say: Say) -> bool:
    """Fit by the stages of DANCE; returns whether the last line search failed."""
    how, failed = NEWTON[settings.layers], False
    for wanted in stages(FIRST, sum(sizes), how.growth):
        taken, count = _prefix(sizes, wanted)
        last = taken == len(sizes)
        least = (
            LEAST[settings.layers] if last else max(LEAST[settings.layers], (2 * how.c) ** 0.5 * how.known_to(count))
        )
        bent = damped.parts[: _prefix(sizes, BENT)[0]] if settings.layers == "dense" else None
        staged = replace(damped, parts=damped.parts[:taken])
        found = newton(staged, least=least, settings=how, curvature=None if bent is None else bent[:taken])
        say(f"{count:,} samples: {found.steps} Newton steps, gradient {found.norm:.2e}")
        failed = found.failed
        if last:
            break
    return failed


def _by_lbfgs(damped: DampedLoss, sizes: list[int], settings: RefitSettings, say: Say) -> bool:
    """Fit by progressive L-BFGS; returns whether the last line search failed."""
    method, wanted, samples, failures = ProgressiveLbfgs(), FIRST, sum(sizes), 0
    for number in range(MOST_STEPS):
        taken, count = _prefix(sizes, wanted)
        staged = replace(damped, parts=damped.parts[:taken])
        found = method.step(staged, count, damped.parts[:1], samples)
        failures = 0 if found.rate else failures + 1
        whole = count == samples
        if (whole and found.norm <= LEAST[settings.layers]) or failures > 2:
            break
        small = found.norm <= LEAST[settings.layers]
        wanted = min(samples, 2 * count if small else found.wanted)
        if number % 20 == 0:
            say(f"{count:,} samples: gradient {found.norm:.2e}")
    return failures > 0


SOLVE = {"dance": _by_newton, "progressive_lbfgs": _by_lbfgs}


def _changed(predictor: Predictor, names: dict[str, str], layers: FlatLayers) -> dict[str, torch.Tensor]:
    """The new parameters by their names in the export, after copying them into the model in memory."""
    made = {names[name]: each.detach().float() for name, each in layers.parameters.items()}
    own = predictor.task.state_dict()
    with torch.no_grad():
        for name, each in made.items():
            own[name].copy_(each)
    return made
