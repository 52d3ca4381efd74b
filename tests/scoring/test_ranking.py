"""Rankings within groups: what torchmetrics says, what counting pairs says, and groups that have no order."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torchrec")

import torch
from torchmetrics.functional.retrieval import retrieval_hit_rate, retrieval_normalized_dcg, retrieval_recall

from recsmith.data import open_dataset, spec_from_raw
from recsmith.errors import UsageError
from recsmith.scoring.ranking import Grouping, ranking_scores
from recsmith.scoring.scores import by_label, shown_scores
from recsmith.training import RunMetrics

pytestmark = pytest.mark.usefixtures("torchrec")
LAWS = {"hit_rate": retrieval_hit_rate, "recall": retrieval_recall, "ndcg": retrieval_normalized_dcg}


def drawn(seed: int, samples: int, groups: int) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(seed)
    logits = random.permutation(samples) / samples  # no two alike
    return logits, random.integers(0, 2, samples).astype(float), random.integers(0, groups, samples) * 7 - 3


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(2, 60), st.integers(1, 8), st.integers(1, 12))
def test_scores_are_those_of_torchmetrics_and_of_counted_pairs(seed: int, samples: int, groups: int, k: int):
    logits, labels, group = drawn(seed, samples, groups)
    found = ranking_scores(logits, labels, group, [k])
    wanted: dict[str, list[float]] = {name: [] for name in LAWS}
    pairs: list[tuple[float, int]] = []
    for each in np.unique(group):
        mine = group == each
        if not 0 < labels[mine].sum() < mine.sum():
            continue
        given = torch.from_numpy(logits[mine]), torch.from_numpy(labels[mine]).bool()
        for name, law in LAWS.items():
            wanted[name].append(float(law(*given, top_k=min(k, int(mine.sum())))))
        positive, negative = logits[mine][labels[mine] > 0], logits[mine][labels[mine] == 0]
        pairs.append((float((positive[:, None] > negative).mean()), int(mine.sum())))
    assert found.groups == len(pairs)
    if not pairs:
        assert found.auc is None
        return
    values, weights = zip(*pairs, strict=True)
    assert found.auc == pytest.approx(np.average(values, weights=weights), rel=1e-12)
    for name, each in wanted.items():
        assert getattr(found.at[str(k)], name) == pytest.approx(np.mean(each), rel=1e-6)


def test_equal_scores_share_their_places_and_what_is_no_number_has_no_rank():
    one = ranking_scores(np.zeros(4), np.array([1.0, 0, 0, 0]), np.zeros(4, np.int64), [1, 2])
    assert one.auc == 0.5
    assert (one.at["1"].hit_rate, one.at["2"].hit_rate) == (0.0, 1.0)  # place 1.5 of 0 to 3
    for wrong in (np.nan, np.inf):
        assert ranking_scores(np.array([0.0, wrong]), np.array([1.0, 0]), np.zeros(2, np.int64), [1]).groups == 0
    assert ranking_scores(np.array([0.0, 1]), np.ones(2), np.zeros(2, np.int64), [1]).auc is None


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(2, 60), st.integers(1, 8), st.integers(1, 12))
def test_weights_count_in_pairs_gains_and_shares(seed: int, samples: int, groups: int, k: int):
    logits, labels, group = drawn(seed, samples, groups)
    logits = np.round(logits, 1)  # some are alike
    weights = np.random.default_rng(seed + 1).choice([0.0, 0.25, 1.0, 3.0], samples)
    found = ranking_scores(logits, labels, group, [k], weights)
    aucs: list[tuple[float, float]] = []
    recalls, gains, hits = list[float](), list[float](), list[float]()
    for each in np.unique(group):
        mine = group == each
        said, wanted, weight = logits[mine], labels[mine] > 0, weights[mine]
        if not weight[wanted].sum() or not weight[~wanted].sum():
            continue
        above = (said[wanted][:, None] > said[~wanted]) + (said[wanted][:, None] == said[~wanted]) / 2
        pairs = weight[wanted][:, None] * weight[~wanted]
        aucs.append((float((above * pairs).sum() / pairs.sum()), float(weight.sum())))
        place = np.array([(said > one).sum() + ((said == one).sum() - 1) / 2 for one in said])
        first = weight * wanted * (place < k)
        recalls.append(first.sum() / weight[wanted].sum())
        hits.append(float(first.sum() > 0))
        best = np.sort(weight * wanted)[::-1][:k]
        gains.append((first / np.log2(place + 2)).sum() / (best / np.log2(np.arange(len(best)) + 2)).sum())
    assert found.groups == len(aucs)
    if not aucs:
        assert found.auc is None
        return
    values, sums = zip(*aucs, strict=True)
    assert found.auc == pytest.approx(np.average(values, weights=sums), rel=1e-9)
    at = found.at[str(k)]
    assert (at.recall, at.ndcg, at.hit_rate) == pytest.approx((np.mean(recalls), np.mean(gains), np.mean(hits)))


def test_gains_of_weights_are_those_of_torchmetrics():
    logits, labels, weights = np.array([4.0, 3, 2, 1]), np.array([0.0, 1, 1, 0]), np.array([1.0, 0.5, 3, 1])
    found = ranking_scores(logits, labels, np.zeros(4, np.int64), [3], weights)
    target = torch.from_numpy(labels * weights)
    assert found.at["3"].ndcg == pytest.approx(float(LAWS["ndcg"](torch.from_numpy(logits), target, top_k=3)))


def test_logs_have_rankings_flat_and_in_words():
    logits, labels, group = np.array([3.0, 2, 1]), np.array([1.0, 0, 1]), np.zeros(3, np.int64)
    found = ranking_scores(logits, labels, group, [1])
    at = {k: {"hit_rate": each.hit_rate, "recall": each.recall, "ndcg": each.ndcg} for k, each in found.at.items()}
    scores = {"logloss": 0.5, "ne": 1.0, "auc": 0.5, "calibration": 1.0}
    raw = {**scores, "ranking": {"groups": 1, "auc": found.auc, "at": at}}
    flat = by_label(raw)
    assert (flat["groups"], flat["grouped_auc"], flat["recall@1"], flat["hit_rate@1"]) == (1, 0.5, 0.5, 1.0)
    assert shown_scores(raw).endswith("grouped AUC 0.50000, HR@1 1.0000, recall@1 0.5000, NDCG@1 1.0000, of 1 groups")


def test_groups_are_those_of_a_feature_or_of_a_target():
    events = {"users": 30, "items": 40, "events": 12}
    spec = {"format": "sequences", "generated": events, "negatives": 3}
    dataset = open_dataset(spec_from_raw(dict(spec), "events"))
    samples = dataset.source.read(0).samples
    own, users = Grouping(None, (5,), dataset), Grouping("user", (), dataset)
    assert np.bincount(own.of(samples)).tolist() == [4] * (len(samples) // 4)
    assert users.of(samples).tolist() == samples.ids["user"].values.tolist()
    with pytest.raises(UsageError, match=r"metrics\.group is 'history', of which a sample has \d+ ids"):
        Grouping("history", (), dataset).of(samples)
    with pytest.raises(UsageError, match=r"data\.test has no feature 'users'; did you mean 'user'"):
        Grouping("users", (), dataset)
    for wrong in ((0,), (2, 2)):
        with pytest.raises(UsageError, match=r"metrics\.at"):
            RunMetrics(at=wrong)


def test_a_run_that_could_not_be_scored_is_refused_before_it_trains(tmp_path: Path):
    from training.models.test_model_jobs import DATA, a_run

    from recsmith.training import RunData
    from recsmith.training.launch.dry_run import described

    plain = {"format": "generator", "features": [{"name": "a", "num_embeddings": 9}], "num_samples": 50}
    for test, metrics, said in (
        (plain, RunMetrics(), "data.test has features a, and the model was trained on"),
        ({**DATA, "split": "test"}, RunMetrics(group="users"), "data.test has no feature 'users'"),
    ):
        data = RunData(train=DATA, test=test, global_batch_size=8)
        with pytest.raises(UsageError, match=said):
            described(a_run(tmp_path / "out", data=data, ranks=1, metrics=metrics))
