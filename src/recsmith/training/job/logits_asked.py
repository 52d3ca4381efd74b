"""Whether the user's model returns a logit for each label, checked before tables are allocated.

The model is called on PyTorch's device `meta`, which has shapes but no numbers, so tables of any size cost nothing.
"""

import torch
from torch.func import functional_call
from torchrec import KeyedJaggedTensor

from recsmith.training.batches import as_tensors
from recsmith.training.job.losses import by_label
from recsmith.training.job.models import Unsharded
from recsmith.training.sources import first_batch

SAMPLES = 2
SHAPES = torch.device("meta")


def check_logits(parts: Unsharded) -> None:
    """Refuse what `by_label` would refuse in the first step; a model that needs real numbers is left to that step.

    Raises:
        UsageError: the model returns more or fewer logits than samples have labels.
    """
    if ":" not in parts.run.model.name or parts.run.model.loss != "binary":
        return
    batch = as_tensors(first_batch(parts.source, SAMPLES), parts.features)
    if isinstance(batch.sparse_features, KeyedJaggedTensor):
        batch.sparse_features.sync()  # compute offsets while the lengths are numbers
    model, batch = parts.task.model, batch.to(SHAPES)
    weights = {name: each.to(SHAPES) for name, each in model.state_dict(keep_vars=True).items()}
    try:
        logits = functional_call(model, weights, (batch.dense_features, batch.sparse_features))
    except (RuntimeError, TypeError):  # the result depends on numbers
        return
    by_label(logits, batch)
