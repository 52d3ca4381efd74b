"""A sparse copy of a trained model: most weights of its linear layers become zero, and the remaining ones are tuned.

    recsmith sparse runs/first --share 0.8

Tables are not changed. Their vectors are looked up once and kept; masks and tuning use dense layers alone.

Which weights are kept: Ye et al. 2020, "Adaptive Dense-to-Sparse Paradigm for Pruning Online Recommendation System with
Non-Stationary Data" (arXiv 2010.08655), learn the share of each layer, and combine several measures, since each alone
can fail. Here one threshold for all layers is applied to a sum of three scores: the size of a weight; size
times gradient; and a mask. The mask is learned with a price on the weights that it keeps, which rises until the wanted
share is gone. Size and gradient are divided by their layer's mean.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from recsmith.data import Batch
from recsmith.errors import UsageError
from recsmith.files import Source, encode, source_text
from recsmith.scoring.scores import Scores
from recsmith.training.batches import as_tensors
from recsmith.training.job.card import read_card, trained_model
from recsmith.training.job.export import export_changed
from recsmith.training.job.sharded import table_of
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
from recsmith.training.run import load_run
from recsmith.training.sources import open_data
from recsmith.training.systems.second_order.cached_tables import CachedBatch, CachedTables
from recsmith.training.systems.sparse.settings import Sparsified, SparsitySettings

LEAST = 0.02  # least share of a layer's weights that is kept: a layer of zeros would pass nothing on
MASK_RATE = 0.05  # learning rate of Adam for masks: 20 steps move a mask from 1 to 0
DEARER = 1.3  # factor of the price of a kept weight, after each step that keeps too many
FIRST = 0.1  # share of weights whose gradient the first price outweighs
GONE = 0.5  # a mask below this drops its weight
Weights = Mapping[str, torch.Tensor]
Losses = Callable[[Mapping[str, torch.Tensor], Any], torch.Tensor]


def masks_of(
    weights: Weights, others: Weights, losses: Losses, parts: Sequence[Any], *, share: float, steps: int,
    per_layer: bool = False,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """Choose the weights to keep: by layer, True if a weight is kept.

    Args:
        weights: of linear layers, by name.
        others: all other parameters, by name.
        losses: returns the losses of a part's samples, given parameters by name.
        parts: of the data.
        share: the share of weights that become zero.
        steps: most steps of the learned mask; 0 omits it.
        per_layer: whether each layer loses the same share.
    """
    moved = _moved(weights, others, losses, parts)
    learned = _learned(weights, others, losses, parts, moved, share, steps) if steps else {}
    scores = {
        name: _in_means(each.abs()) + _in_means(moved[name]) + learned.get(name, torch.zeros_like(each))
        for name, each in weights.items()
    }
    floors = {name: max(1, round(LEAST * each.numel())) for name, each in scores.items()}
    if per_layer:
        return {name: _largest(each, max(_left(each.numel(), share), floors[name])) for name, each in scores.items()}
    for name, each in scores.items():
        each.view(-1)[each.flatten().topk(floors[name]).indices] = torch.inf
    every = torch.cat([each.flatten() for each in scores.values()])
    most = max(_left(len(every), share), sum(floors.values()))
    kept = _largest(every, most).split([each.numel() for each in scores.values()])
    return {name: each.view_as(scores[name]) for name, each in zip(scores, kept, strict=True)}


def _left(count: int, share: float) -> int:
    """The number of weights that remain if a share of `count` becomes zero."""
    return count - round(share * count)


def _largest(scores: torch.Tensor, count: int) -> torch.Tensor:
    """True for the `count` largest scores; ties are broken by position."""
    kept = torch.zeros(scores.numel(), dtype=torch.bool, device=scores.device)
    kept[scores.flatten().argsort(descending=True, stable=True)[:count]] = True
    return kept.view_as(scores)


def _in_means(scores: torch.Tensor) -> torch.Tensor:
    return scores / scores.mean().clamp_min(torch.finfo(scores.dtype).tiny)


def _moved(weights: Weights, others: Weights, losses: Losses, parts: Sequence[Any]) -> dict[str, torch.Tensor]:
    """First-order change of the loss if a weight becomes zero: the mean of |weight times gradient| over parts."""
    total = {name: torch.zeros_like(each) for name, each in weights.items()}
    for part in parts:
        given = {name: each.detach().requires_grad_() for name, each in weights.items()}
        slopes = torch.autograd.grad(losses({**others, **given}, part).mean(), list(given.values()))
        for name, slope in zip(given, slopes, strict=True):
            total[name] += (given[name].detach() * slope).abs() / len(parts)
    return total


def _learned(
    weights: Weights, others: Weights, losses: Losses, parts: Sequence[Any], moved: Weights, share: float, steps: int
) -> dict[str, torch.Tensor]:
    """A mask (0..1) for each layer, learned with a price on kept weights, which rises until the share is gone."""
    masks = {name: torch.ones_like(each, requires_grad=True) for name, each in weights.items()}
    adam = torch.optim.Adam(list(masks.values()), lr=MASK_RATE)
    every = torch.cat([each.flatten() for each in moved.values()])
    price = float(every.kthvalue(max(1, round(FIRST * len(every)))).values)
    for step in range(steps):
        adam.zero_grad()
        masked = {name: each.detach() * masks[name].clamp(0, 1) for name, each in weights.items()}
        kept = torch.stack([each.clamp(0, 1).sum() for each in masks.values()]).sum()
        (losses({**others, **masked}, parts[step % len(parts)]).mean() + price * kept).backward()
        adam.step()
        gone = sum(int((each < GONE).sum()) for each in masks.values()) / len(every)
        if gone >= share:
            break
        price = max(price * DEARER, torch.finfo(torch.float32).tiny)
    return {name: each.detach().clamp(0, 1) for name, each in masks.items()}


SPARSE = "sparse"  # the folder next to `model`
LOOKED_AT = 16  # batches whose gradients are used for the choice
Say = Callable[[str], object]
Masks = dict[str, torch.Tensor]


def sparsify(
    folder: Source, data: Any = None, *, settings: SparsitySettings | None = None, test: Any = None,
    output: Source | None = None, force: bool = False, on_progress: Say | None = None,
) -> tuple[Sparsified, dict[str, Scores]]:  # fmt: skip
    """Make a sparse copy of the model in a run's folder, and export it next to the whole model.

    Args:
        folder: of the run, whose `model` is not changed.
        data: a path or a spec, to choose and tune weights by; None: the data that the run was trained on.
        settings: the share of weights that become zero, and how the others are tuned.
        test: data on which both models are scored.
        output: folder of the copy; None: `sparse` in the folder of the run.
        force: replace a folder there that holds something else.
        on_progress: called with each line of progress.

    Returns:
        (the layers of the copy, scores on `test` of the `full` and of the `sparse` model).

    Raises:
        UsageError: the folder holds no trained model; the model has no linear layers; the data has another schema or no
            samples; or the output is the model, or something else. In these cases nothing is written.
    """
    settings, say = settings or SparsitySettings(), on_progress or (lambda _: None)
    model = trained_model(folder)
    target = model.parent / SPARSE if output is None else Path(source_text(output, "an output"))
    check_target(target, model, force=force, made="sparse", what="sparse copy")
    card, where = read_card(model), "--data"
    if data is None:
        data, where = _data_of_run(model), "data.train of the run"
    predictor, dataset = load_model(model), open_data(read_as_run(data, model), where)
    batches = batches_like(card, dataset, where, samples=settings.samples, size=settings.batch_size)
    tested = None if test is None else list(batches_like(card, open_data(read_as_run(test, model), "--test"), "--test"))
    scores = {} if tested is None else {"full": scored(predictor, tested)}
    copy = DenseCopy(predictor, looked_up(predictor, batches, where))
    left = f"; {copy.corrupt:,} corrupt ones were left out" if copy.corrupt else ""
    say(f"{copy.samples:,} samples read once{left}; {copy.count:,} weights")
    labels = torch.cat([part.batch.labels for part in copy.parts])
    check_classes(labels, predictor.schema.labels)
    before = copy.loss()
    if not math.isfinite(before):
        raise UsageError(f"the model's loss on {where} is not finite; look at its values (recsmith data check)")
    masks = copy.masked(settings)
    copy.tune(masks, settings)
    made = copy.result(masks, settings, before)
    if made.zeros < round(settings.share * made.weights):
        say(f"{made.zeros / made.weights:.1%} of weights go, not {settings.share:.1%}: {LEAST:.0%} of each layer stay")
    check_useful(made.loss, entropy_of(labels), f"the copy, of which {made.zeros / made.weights:.1%} are zero,")
    if tested is not None:
        scores["sparse"] = scored(predictor, tested)
    written = {name: encode(each) for name, each in scores.items()}
    origin = origin_of(folder, model, data, dataset)
    described = {"sparse": encode(made), "test": written.get("sparse"), "origin": origin}
    export_changed(model, target, copy.changed(), described)
    return made, scores


def _data_of_run(model: Path) -> Any:
    """The training data of a model's run. Raises UsageError if the model is not in a run's folder."""
    file = model.parent / "run.json"
    if not file.exists():
        raise UsageError(f"'{model}' lies in no run's folder, whose data could be taken; give --data")
    return load_run(file).data.train


def looked_up(predictor: Predictor, batches: Iterator[Batch], where: str) -> list[CachedBatch]:
    """Batches with their looked-up table vectors. Raises UsageError if there is no sample."""
    tables, found = CachedTables(predictor.task), list[CachedBatch]()
    for batch in batches:
        if len(batch):
            predictor.check(batch)
            tensors = as_tensors(batch, predictor.features)
            with tables.recorded(tensors, found), torch.no_grad():
                tables.task(tensors)
    if not found:
        raise UsageError(f"{where} has no samples; give data to choose weights by")
    return found


@dataclass
class DenseCopy:
    """The dense layers of a model, which are changed in place, and samples for them. Tables are not changed."""

    predictor: Predictor
    parts: Sequence[CachedBatch]

    def __post_init__(self) -> None:
        model = self.predictor.task.model
        self.tables = CachedTables(self.predictor.task)
        self.parameters = {name: each for name, each in model.named_parameters() if not table_of(name)}
        linear = {f"{name}.weight" for name, each in model.named_modules() if isinstance(each, nn.Linear)}
        self.weights = {name: each for name, each in self.parameters.items() if name in linear}
        if not self.weights:
            raise UsageError("the model has no linear layer, and so no weights that a sparse copy could leave out")

    @property
    def samples(self) -> int:
        """The number of samples."""
        return sum(each.samples for each in self.parts)

    @property
    def corrupt(self) -> int:
        """The number of corrupt samples that were skipped, in batches that have other samples."""
        return sum(each.batch.place.samples.corrupt for each in self.parts)

    @property
    def count(self) -> int:
        """The number of weights of linear layers."""
        return sum(each.numel() for each in self.weights.values())

    def masked(self, settings: SparsitySettings) -> Masks:
        """Choose the weights to keep, and set the others to zero."""
        others = {name: each.detach() for name, each in self.parameters.items() if name not in self.weights}
        masks = masks_of(
            {name: each.detach() for name, each in self.weights.items()}, others, self.tables.losses,
            self.parts[:LOOKED_AT], share=settings.share, steps=settings.masks, per_layer=settings.per_layer,
        )  # fmt: skip
        self._apply(masks)
        return masks

    def tune(self, masks: Masks, settings: SparsitySettings) -> None:
        """Tune all dense parameters by steps of Adam; weights that are zero stay zero."""
        adam = torch.optim.Adam(list(self.parameters.values()), lr=settings.learning_rate)
        turns = (part for _ in range(1 + settings.steps // len(self.parts)) for part in self.parts)
        for part in islice(turns, settings.steps):
            adam.zero_grad()
            self.tables.losses(self.parameters, part).mean().backward()
            adam.step()
            self._apply(masks)
        adam.zero_grad()

    def _apply(self, masks: Masks) -> None:
        with torch.no_grad():
            for name, mask in masks.items():
                self.weights[name].mul_(mask)

    def loss(self) -> float:
        """The mean log loss of the samples."""
        with torch.no_grad():
            sums = [float(self.tables.losses(self.parameters, part).sum()) for part in self.parts]
        return sum(sums) / self.samples

    def result(self, masks: Masks, settings: SparsitySettings, loss_full: float) -> Sparsified:
        """Describe the sparse layers, for the card."""
        return Sparsified(
            settings=settings, samples=self.samples, loss_full=loss_full, loss=self.loss(),
            layers={name: float((~mask).float().mean()) for name, mask in masks.items()},
            weights=sum(each.numel() for each in masks.values()),
            zeros=sum(int((~each).sum()) for each in masks.values()), corrupt=self.corrupt,
        )  # fmt: skip

    def changed(self) -> dict[str, torch.Tensor]:
        """The dense parameters by their names in an export."""
        return {f"model.{name}": each.detach() for name, each in self.parameters.items()}
