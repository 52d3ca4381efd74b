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


def test_average_precision_counts_a_weight_as_so_many_samples():
    import torch
    from torchmetrics.functional.classification import binary_average_precision

    from recsmith.scoring.predictions import ScoredLabels, _exact  # pyright: ignore[reportPrivateUsage]

    draw = np.random.default_rng(0)
    logits = torch.from_numpy(draw.normal(size=200).round(1))  # some are alike
    labels, weights = torch.from_numpy(draw.integers(0, 2, 200)), torch.from_numpy(draw.integers(0, 4, 200))
    told = ScoredLabels(("y",), pr_auc=True)
    _, (found,) = _exact([(logits, labels.double(), weights.double())], told)
    scores, truth = (each.repeat_interleave(weights) for each in (logits.sigmoid(), labels))
    assert found.pr_auc == pytest.approx(float(binary_average_precision(scores, truth)), rel=1e-6), "summed in fp32"
    _, (plain,) = _exact([(logits, labels.double(), torch.ones(200))], told)
    assert plain.pr_auc == pytest.approx(float(binary_average_precision(logits.sigmoid(), labels)), rel=1e-6)
    assert plain.pr_auc != pytest.approx(found.pr_auc, rel=1e-6)
    _, (none,) = _exact([(logits, labels.double(), 1.0 - labels)], told)
    assert none.pr_auc is None, "no positive has a weight"
