"""A trained model fitted again to other data: its last layer, or all dense layers, by second order.

    recsmith refit runs/first --data clicks/today.parquet

What lies before the layers is computed once and kept, so that the data are read once. The new layers are held near the
old ones: damping / 2 times the squared distance is added to the loss. For the last layer that is a convex problem, and
its gradient bounds what is left: a loss that curves at least by `damping` is at most |gradient|^2 / (2 damping) above
its least.

n samples
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from recsmith.data import Batch, Dataset
from recsmith.errors import RecSmithError, UsageError
from recsmith.files import Source, encode, source_text
from recsmith.files.writable import check_writable
from recsmith.training.batches import as_tensors
from recsmith.training.card import CARD, ModelCard, RefitSettings, Refitted, read_card
from recsmith.training.export import MODEL, export_changed
from recsmith.training.metrics import exact_scores
from recsmith.training.optimizers.dance import DanceSettings, newton, stages
from recsmith.training.optimizers.flat import DampedLoss, FlatLayers
from recsmith.training.optimizers.progressive_lbfgs import ProgressiveLbfgs
from recsmith.training.refit_layers import LAYERS, size_of
from recsmith.training.scores import Scores
from recsmith.training.serving import Predictor, load_model
from recsmith.training.sources import open_data

REFIT = "refit"  # the folder beside `model`
READ = 4096  # samples of a part
FIRST = 4096  # samples of the first stage
LEAST = {"last": 1e-4, "dense": 1e-3}  # norm of the gradient at which fitting ends
NEWTON = {"last": DanceSettings(inner=200, newton=50), "dense": DanceSettings(inner=10, newton=10)}
BENT = 8192  # samples whose Hessian serves for all dense layers
MOST_STEPS = 300  # of progressive L-BFGS
Say = Callable[[str], object]


def refit(
    folder: Source, data: Any, *, settings: RefitSettings | None = None, test: Any = None, output: Source | None = None,
    force: bool = False, on_progress: Say | None = None,
) -> tuple[Refitted, dict[str, Scores]]:  # fmt: skip
    """Fit layers of the model in a run's folder to other data, and export it beside the old one.

    Args:
        folder: of the run, whose `model` stays as it is.
        data: a path or a spec, with the features, dense columns and labels that the model was trained on.
        settings: which layers, by which method, and how near the old ones.
        test: data that both models are scored on.
        output: folder of the new model; none: `refit` in the folder of the run.
        force: replace a folder there that holds something else.
        on_progress: hears of lines.

    Returns:
        (how it went, scores on `test` of the `old` and the `new` model).

    Raises:
        UsageError: the folder holds no trained model; data of another schema, of one class, or without samples; the
            loss is not finite; the output is the model, or something else.
        RecSmithError: no step lowers the loss. Nothing is written then.
    """
    settings, say = settings or RefitSettings(), on_progress or (lambda _: None)
    model = trained_model(folder)
    target = model.parent / REFIT if output is None else Path(source_text(output, "an output"))
    check_target(target, model, force=force, made="refit", what="model that was fitted again")
    card = read_card(model)
    _check_card(card, settings)
    predictor, batches = load_model(model), batches_like(card, open_data(data, "--data"), "--data")
    tested = None if test is None else list(batches_like(card, open_data(test, "--test"), "--test"))
    scores = {} if tested is None else {"old": scored(predictor, tested)}
    names, layers, parts = _cached(predictor, batches, settings, say)
    refitted = _fitted(layers, parts, settings, say)
    changed = _changed(predictor, names, layers)
    if tested is not None:
        scores["new"] = scored(predictor, tested)
    found = {name: encode(each) for name, each in scores.items()}
    export_changed(model, target, changed, {"refit": encode(refitted), "test": found.get("new")})
    return refitted, scores


def trained_model(folder: Source) -> Path:
    """The folder of the model in a run's folder; UsageError where there is none."""
    run = Path(source_text(folder, "the folder of a run"))
    if not (run / MODEL / CARD).exists():
        raise UsageError(f"'{run}' holds no trained model; give the output folder of a run that is complete")
    return run / MODEL


def check_target(target: Path, model: Path, *, force: bool, made: str, what: str) -> None:
    """UsageError where an output is the model itself, or holds something else than the card's `made` says."""
    if target.resolve() == model.resolve():
        raise UsageError(f"'{target}' is the model itself, which stays as it is; give another output")
    check_writable(target, "the output", "give another output")
    if not target.exists() or force:
        return
    if not (target / CARD).exists() or getattr(read_card(target), made) is None:
        raise UsageError(f"'{target}' is there and holds no {what}; give another output, or --force")


def _check_card(card: ModelCard, settings: RefitSettings) -> None:
    if settings.layers == "dense" and card.model.precision == "bf16":
        raise UsageError(
            "model.precision is bf16, whose losses are too coarse to compare for all dense layers; give --layers last"
        )
    if settings.layers == "dense" and card.columns is not None:
        raise UsageError("the model sees a part of its embeddings' columns (comms.pooled); give --layers last")


def batches_like(card: ModelCard, dataset: Dataset, where: str, size: int = READ) -> Iterator[Batch]:
    """The samples of a dataset with the model's schema, as they come; UsageError where it is of another one."""
    here, there = dataset.schema, card.data
    pairs = [
        ("features", [each.name for each in here.features], [each.name for each in there.features]),
        ("features with weights", *([each.name for each in both.features if each.weighted] for both in (here, there))),
        ("dense columns", list(here.dense), list(there.dense)), ("labels", list(here.labels), list(there.labels)),
    ]  # fmt: skip
    for what, mine, wanted in pairs:
        if mine != wanted:
            raise UsageError(
                f"{where} has {what} {_listed(mine)}, and the model was trained on {_listed(wanted)}; give data of "
                "the same schema"
            )
    return dataset.batches(rank=0, world_size=1, batch_size=size, seed=0, shuffle=False, drop_last=False)


def _listed(names: Sequence[str]) -> str:
    return (", ".join(names[:8]) + (", ..." if len(names) > 8 else "")) or "none"


def _cached(
    predictor: Predictor, batches: Iterator[Batch], settings: RefitSettings, say: Say
) -> tuple[dict[str, str], FlatLayers, list[Any]]:
    """(names of the layers' parameters in the model, the layers as a vector, parts of the data as they see them).

    Raises:
        UsageError: there is no sample, or all have one label; the model ends in no linear layer.
    """
    made: Any = None
    parts, labels, count = list[Any](), list[torch.Tensor](), 0
    for batch in batches:
        if not len(batch):
            continue
        predictor.check(batch)
        tensors = as_tensors(batch, predictor.features)
        made = made or LAYERS[settings.layers](predictor.task, tensors)
        parts.append(made.part(tensors))
        labels.append(tensors.labels)
        count += len(batch)
        if count >= settings.samples:
            break
    if made is None:
        raise UsageError("--data has no samples; give data to fit the model to")
    _check_classes(torch.cat(labels), predictor.schema.labels)
    say(f"{count:,} samples read once; fitting {made.told}")
    return made.names, made.layers, parts


def _check_classes(labels: torch.Tensor, names: Sequence[str]) -> None:
    """UsageError where all samples have one label: the best model of these is sure of it, whatever a sample says."""
    for name, column in zip(names, labels.T, strict=True):
        if column.min() == column.max():
            raise UsageError(
                f"all {len(column):,} samples have {name} {float(column[0]):g}; give data with both classes"
            )


def _fitted(layers: FlatLayers, parts: list[Any], settings: RefitSettings, say: Say) -> Refitted:
    start = layers.weights()
    before = layers.loss(start, parts)
    if not math.isfinite(before):
        raise UsageError("the model's loss on --data is not finite; look at its values (recsmith data check)")
    sizes = [size_of(part) for part in parts]
    damped = DampedLoss(layers, parts, settings.damping, start)
    solve = _by_newton if settings.method == "dance" else _by_lbfgs
    failed = solve(damped, sizes, settings, say)
    layers.put(layers.weights().float().to(start.dtype))  # as it will be written
    loss, slope = damped.gradient(layers.weights())
    norm, after = float(slope.norm()), layers.loss(layers.weights(), parts)
    least = LEAST[settings.layers]
    if not after < before and norm > 10 * least:
        raise RecSmithError(
            f"no step lowers the loss of {before:.6f} on these data, whose gradient has norm {norm:.3g}; nothing was "
            "written: give more samples, or a larger damping"
        )
    say(f"loss {before:.5f} -> {after:.5f}; gradient {norm:.2e}" + (", where a line search ended" if failed else ""))
    return Refitted(
        settings=settings, samples=sum(sizes), loss_before=before, loss=after, damped=loss, norm=norm,
        bound=norm * norm / (2 * settings.damping) if settings.layers == "last" else None,
        passes=layers.visited / sum(sizes),
    )  # fmt: skip


def _prefix(sizes: Sequence[int], wanted: int) -> tuple[int, int]:
    """(parts, samples in them) that hold as many samples as are wanted."""
    count = 0
    for number, size in enumerate(sizes):
        count += size
        if count >= wanted:
            return number + 1, count
    return len(sizes), count


def _by_newton(damped: DampedLoss, sizes: list[int], settings: RefitSettings, say: Say) -> bool:
    """DANCE's stages; whether the last line search failed."""
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
    """Progressive L-BFGS; whether the last line search failed."""
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


def _changed(predictor: Predictor, names: dict[str, str], layers: FlatLayers) -> dict[str, torch.Tensor]:
    """The new parameters by their names in the export; the model in memory has them, too."""
    made = {names[name]: each.detach().float() for name, each in layers.parameters.items()}
    own = predictor.task.state_dict()
    with torch.no_grad():
        for name, each in made.items():
            own[name].copy_(each)
    return made


def scored(predictor: Predictor, batches: Sequence[Batch]) -> Scores:
    """Scores of a model on samples in this process."""
    logits, labels = list[torch.Tensor](), list[torch.Tensor]()
    with torch.no_grad():
        for batch in batches:
            predictor.check(batch)
            _, (_, found, given, _) = predictor.task(as_tensors(batch, predictor.features))
            logits.append(found)
            labels.append(given)
    if not logits:
        raise UsageError("--test has no samples; give data to score the models on")
    return exact_scores(torch.cat(logits), torch.cat(labels), predictor.schema.labels)
