"""The trained network of a search: scores of its choices, and AUC of sampled architectures with its weights.

N parts of a space, K choices of the part with most choices
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recsmith._types import Floats
from recsmith.errors import UsageError
from recsmith.scoring.predictions import exact_auc
from recsmith.searching import Picks, SearchSpace
from recsmith.training.batches import as_tensors
from recsmith.training.job.card import MODEL
from recsmith.training.results.serving import load_model
from recsmith.training.run import Run
from recsmith.training.sources import open_data
from recsmith.training.systems.search.tables import draws_of, pick
from recsmith.training.tables.plain import features_of

BATCH = 16_384  # samples of data that are scored at once


def read_scores(output: str, space: SearchSpace) -> Floats:
    """Read the scores of choices (N, K) from a trained network; -inf if a part has fewer choices."""
    return scores_of(load_model(Path(output) / MODEL).task, space)


def scores_of(task: Any, space: SearchSpace) -> Floats:
    """Scores of choices (N, K) of a loaded network; -inf if a part has fewer choices."""
    scores = np.full((len(space.parts), max(len(part.options) for part in space.parts)), -np.inf)
    theta = [row for each in draws_of(task) for row in each.theta.detach().double().numpy()]
    for n, part in enumerate(space.parts):
        scores[n, : len(part.options)] = theta[n][: len(part.options)]
    return scores


def scored_samples(network: Run, samples: Sequence[Picks], most: int) -> list[float]:
    """AUC on data.test of each sampled architecture in the network. most: samples of data.test to read, about."""
    task = load_model(Path(network.output) / MODEL).task.eval()
    features, batches, count = features_of(task), list[object](), 0
    with open_data(network.data.test, "data.test").batches(
        rank=0, world_size=1, batch_size=BATCH, seed=0, shuffle=False, drop_last=False
    ) as read:
        for batch in read:
            batches.append(as_tensors(batch, features))
            count += len(batch)
            if count >= most:
                break
    found: list[float] = []
    for picks in samples:
        pick(task, picks)
        with torch.no_grad():
            outcomes = [task(batch)[1] for batch in batches]
        logits = torch.cat([logits[:, 0] for _, logits, _, _ in outcomes])
        auc = exact_auc(logits, torch.cat([labels[:, 0] for _, _, labels, _ in outcomes]))
        if auc is None:
            raise UsageError("samples are scored by their AUC, and all labels of the test data are equal; give others")
        found.append(auc)
    pick(task, None)
    return found
