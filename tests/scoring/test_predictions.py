"""Scores of weighted predictions: a sample of weight k counts as k of them."""

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("torchrec")


def test_a_weight_counts_as_so_many_samples():
    import torch

    from recsmith.data import Batch
    from recsmith.scoring.predictions import exact_scores

    draw = np.random.default_rng(0)
    logits, labels = draw.normal(size=(200, 1)).astype(np.float32), draw.integers(0, 2, (200, 1)).astype(np.float32)
    weights = draw.integers(0, 4, 200)
    batch = Batch(dense=np.zeros((200, 0), np.float32), ids={}, labels=labels, label_names=("y",),
                  sample_ids=np.arange(200), weights=weights.astype(np.float32))  # fmt: skip
    weighted = exact_scores(torch.from_numpy(logits), torch.from_numpy(labels), ["y"], [batch])
    said, known = (torch.from_numpy(np.repeat(each, weights, axis=0)) for each in (logits, labels))
    repeated = exact_scores(said, known, ["y"])
    plain = exact_scores(torch.from_numpy(logits), torch.from_numpy(labels), ["y"])
    for name in ("logloss", "ne", "calibration", "auc"):
        assert getattr(weighted, name) == pytest.approx(getattr(repeated, name), rel=1e-12)
        assert getattr(weighted, name) != pytest.approx(getattr(plain, name), rel=1e-6)
    assert weighted.samples == 200
