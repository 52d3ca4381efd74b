"""What copies of a trained model have in common: the data they are made with, their target, and their origin.

n samples, L labels
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from recsmith.data import Batch, Dataset
from recsmith.data.same_data import check_same_data
from recsmith.errors import RecSmithError, UsageError
from recsmith.files import Raw, Source, encode, source_text
from recsmith.files.writable import check_writable
from recsmith.scoring.predictions import exact_scores
from recsmith.scoring.scores import Scores
from recsmith.training.batches import as_tensors
from recsmith.training.job.card import CARD, CopyOrigin, ModelCard, read_card, weights_digest
from recsmith.training.results.serving import Predictor

READ = 4096  # samples that are read at once


def check_target(target: Path, model: Path, *, force: bool, made: str, what: str) -> None:
    """UsageError if an output is the model itself, or holds something that is not a copy of kind `made`."""
    if target.resolve() == model.resolve():
        raise UsageError(f"'{target}' is the model itself, which stays as it is; give another output")
    check_writable(target)
    if not target.exists() or force:
        return
    if not (target / CARD).exists() or getattr(read_card(target), made) is None:
        raise UsageError(f"'{target}' is there and holds no {what}; give another output, or --force")


def origin_of(folder: Source, model: Path, data: Any, dataset: Dataset) -> Raw:
    """The origin that the card of a copy states: a model, as its folder was given, and data."""
    named = data if isinstance(data, dict) else source_text(data, "data")
    where = source_text(folder, "the folder of a model")
    return encode(CopyOrigin(model=where, weights=weights_digest(model), data=named, digest=dataset.source.digest))


def batches_like(
    card: ModelCard, dataset: Dataset, where: str, *, samples: int | None = None, size: int = READ
) -> Iterator[Batch]:
    """The samples of a dataset in stored order; UsageError if it differs in meaning from the model's training data.

    samples: at most this many, from the first; None: all.
    """
    if card.model.loss != "binary" or card.model.tasks:
        by = "model.tasks" if card.model.tasks else f"model.loss: {card.model.loss}"
        raise UsageError(
            f"the model was trained by {by}, and a copy is fitted to binary cross entropy of each label; train one by "
            "that"
        )
    check_same_data(card.data, dataset.schema, where)
    batches = dataset.batches(rank=0, world_size=1, batch_size=size, seed=0, shuffle=False, drop_last=False)
    return batches if samples is None else _first(batches, samples)


def _first(batches: Iterator[Batch], samples: int) -> Iterator[Batch]:
    for batch in batches:
        taken = batch if len(batch) <= samples else replace(batch.take(np.arange(samples)), corrupt=batch.corrupt)
        samples -= len(taken)
        yield taken
        if not samples:
            return


def check_classes(labels: torch.Tensor, names: Sequence[str]) -> None:
    """UsageError if all samples have the same label, because the best model would then always predict it."""
    for name, column in zip(names, labels.T, strict=True):
        if column.min() == column.max():
            raise UsageError(
                f"all {len(column):,} samples have {name} {float(column[0]):g}; give data with both classes"
            )


def entropy_of(labels: torch.Tensor) -> float:
    """The mean log loss of always predicting the mean of each label (n, L)."""
    labels = labels.double()
    return float(nn.functional.binary_cross_entropy(labels.mean(0).expand_as(labels), labels))


def check_useful(loss: float, entropy: float, what: str) -> None:
    """RecSmithError if a model's log loss is no better than that of the mean label; nothing is written then."""
    if not loss < entropy:
        raise RecSmithError(
            f"{what} has log loss {loss:.6g}, and always saying the mean label has {entropy:.6g}; nothing was written: "
            "look at the values of the data (recsmith data check)"
        )


def scored(predictor: Predictor, batches: Sequence[Batch]) -> Scores:
    """Scores of a model on samples, computed in this process."""
    logits, labels = list[torch.Tensor](), list[torch.Tensor]()
    with torch.no_grad():
        for batch in batches:
            predictor.check(batch)
            _, (_, found, given, _) = predictor.task(as_tensors(batch, predictor.features))
            logits.append(found)
            labels.append(given)
    if not logits:
        raise UsageError("--test has no samples; give data to score the models on")
    return exact_scores(torch.cat(logits), torch.cat(labels), predictor.schema.labels, batches)
