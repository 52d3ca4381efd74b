"""Generated samples: at random access, as the spec says, and with a truth that is known."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recsmith.data import (
    Batch,
    DriftSpec,
    GeneratedFeature,
    GeneratorSpec,
    SessionSpec,
    SwapSpec,
    TeacherSpec,
    area_under_curve,
    open_dataset,
    planted_optimum,
)
from recsmith.data.batch import concatenated
from recsmith.data.figures import repeated_share
from recsmith.data.generator.source import GeneratorSource
from recsmith.errors import UsageError

FEATURES = (
    GeneratedFeature(name="user", num_embeddings=5000, zipf=1.0),
    GeneratedFeature(name="item", num_embeddings=300, zipf=0.5),
    GeneratedFeature(name="tags", num_embeddings=40, pooling_factor=2.5, lengths="poisson"),
)
SPEC = GeneratorSpec(num_samples=60_000, features=FEATURES, dense=3, seed=7)


def test_other_rows_are_hot_after_a_swap_and_lengths_trade_places() -> None:
    one, two = (
        GeneratedFeature(name=name, num_embeddings=1000, zipf=1.2, pooling_factor=mean, lengths="poisson")
        for name, mean in (("a", 2.0), ("b", 6.0))
    )
    spec = GeneratorSpec(num_samples=16_384, features=(one, two), swap=SwapSpec(samples=8192, lengths="rotate"))
    samples, _ = read(spec)
    halves = [samples.take(np.arange(first, first + 8192)) for first in (0, 8192)]
    hot = [set(np.argsort(-np.bincount(half.ids["a"].values, minlength=1000))[:20].tolist()) for half in halves]
    assert len(hot[0] & hot[1]) < 5
    lengths = [half.ids[name].lengths.mean() for half in halves for name in ("a", "b")]
    assert lengths == pytest.approx([2, 6, 6, 2], rel=0.05)
    plain, _ = read(replace(spec, swap=None))
    for name in ("a", "b"):
        assert (plain.take(np.arange(8192)).ids[name].values == halves[0].ids[name].values).all()
    with pytest.raises(UsageError, match="feature 'c' has one id in every sample; give it lengths: poisson"):
        replace(spec, features=(one, GeneratedFeature(name="c", num_embeddings=9)))


def read(spec: GeneratorSpec) -> tuple[Batch, Any]:
    """All samples in order, and their chances."""
    source = GeneratorSource(spec)
    parts = [source.labelled(block) for block in range(len(source.sizes()))]
    return concatenated([samples for samples, _ in parts]), np.concatenate([chances for _, chances in parts])


def logits(spec: GeneratorSpec) -> Any:
    chances = read(spec)[1]
    return np.log(chances / (1 - chances))


def same(first: Batch, second: Batch) -> bool:
    arrays = [(first.dense, second.dense), (first.labels, second.labels), (first.sample_ids, second.sample_ids)]
    for name, bags in first.ids.items():
        arrays += [(bags.values, second.ids[name].values), (bags.lengths, second.ids[name].lengths)]
    return all(np.array_equal(one, other) for one, other in arrays)


@pytest.mark.parametrize("sessions", [SessionSpec(), SessionSpec(size=7, duplication=0.8)])
def test_a_part_of_a_stream_is_the_same_wherever_one_begins(sessions: SessionSpec):
    spec = replace(SPEC, sessions=sessions)
    whole = read(spec)[0]
    part = read(replace(spec, first_sample=4_001, num_samples=9_000))[0]
    assert part.sample_ids[0] == 4_001
    assert same(part, whole.take(np.arange(4_001, 13_001)))
    assert same(part, read(replace(spec, first_sample=4_001, num_samples=9_000))[0])
    assert not same(part, read(replace(spec, first_sample=4_001, num_samples=9_000, seed=8))[0])


def test_samples_hold_what_the_spec_says():
    samples, chances = read(SPEC)
    assert samples.dense.shape == (60_000, 3)
    counts = np.expm1(samples.dense[:1000].astype(np.float64))
    assert np.allclose(counts, np.rint(counts), rtol=1e-5)
    for feature in FEATURES:
        bags = samples.ids[feature.name]
        assert bags.values.min() >= 0
        assert bags.values.max() < feature.num_embeddings
        assert bags.lengths.mean() == pytest.approx(feature.pooling_factor, rel=0.02)
    assert (samples.ids["tags"].lengths == 0).mean() == pytest.approx(np.exp(-2.5), rel=0.05)
    _, counts = np.unique(samples.ids["user"].values, return_counts=True)
    law = 1 / np.arange(1, 5001)
    assert np.sort(counts)[::-1][:20].sum() / 60_000 == pytest.approx(law[:20].sum() / law.sum(), rel=0.02)
    assert chances.mean() == pytest.approx(0.25, abs=0.01)
    assert logits(SPEC).std() == pytest.approx(1.5, rel=0.05)


def test_the_planted_optimum_agrees_with_drawn_labels():
    samples, chances = read(replace(SPEC, num_samples=200_000))
    labels = samples.labels[:, 0].astype(np.float64)
    best = planted_optimum(replace(SPEC, num_samples=200_000))
    assert best.samples == 200_000
    drawn_loss = -np.log(np.where(labels == 1, chances, 1 - chances))
    assert drawn_loss.mean() == pytest.approx(best.log_loss, abs=4 * drawn_loss.std() / np.sqrt(len(labels)))
    assert area_under_curve(chances, labels) == pytest.approx(best.auc, abs=4 * 0.0012)
    of_rate = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    assert best.normalized_entropy == pytest.approx(best.log_loss / of_rate, rel=0.02)
    noisy = chances + np.random.default_rng(0).normal(0, 0.05, len(chances))
    assert area_under_curve(noisy, chances) < best.auc - 0.002
    blind = planted_optimum(replace(SPEC, teacher=TeacherSpec(signal=0)), samples=5000)
    assert (blind.auc, blind.samples) == (pytest.approx(0.5, abs=1e-9), 5000)


def test_the_optimum_is_reached_by_who_counts_labels_of_rows():
    feature = GeneratedFeature(name="a", num_embeddings=200, zipf=0.8)
    spec = GeneratorSpec(num_samples=100_000, features=(feature,), teacher=TeacherSpec(pairs=0, dense=0))
    train, _ = read(spec)
    test, _ = read(replace(spec, first_sample=100_000))
    rows, labels = train.ids["a"].values, train.labels[:, 0]
    rates = (np.bincount(rows, labels, 200) + 0.25) / (np.bincount(rows, minlength=200) + 1)
    reached = area_under_curve(rates[test.ids["a"].values], test.labels[:, 0].astype(np.float64))
    assert reached == pytest.approx(planted_optimum(replace(spec, first_sample=100_000)).auc, abs=0.006)


def test_the_area_under_the_curve_counts_pairs():
    rng = np.random.default_rng(1)
    scores, labels = rng.integers(0, 9, 60).astype(np.float64), (rng.random(60) < 0.4).astype(np.float64)
    pairs = [
        (one > zero) + (one == zero) / 2 for one in scores[labels == 1] for zero in scores[labels == 0]
    ]  # fmt: skip
    assert area_under_curve(scores, labels) == pytest.approx(np.mean(pairs))
    assert area_under_curve(scores, np.ones(60)) == 0.5


def test_rows_of_a_cluster_mean_the_same_and_similarity_says_how_much():
    teacher = TeacherSpec(clusters=6, similarity=1.0)
    source = GeneratorSource(replace(SPEC, teacher=teacher))
    ids = np.arange(5000)
    clusters = source.teacher.clusters("user", ids)
    assert set(clusters) == set(range(6))
    vectors = source.teacher._vectors("user", ids, ids * 0)  # pyright: ignore[reportPrivateUsage]
    assert len(np.unique(vectors, axis=0)) == 6
    partly = GeneratorSource(replace(SPEC, teacher=replace(teacher, similarity=0.6)))
    mixed = partly.teacher._vectors("user", ids, ids * 0)  # pyright: ignore[reportPrivateUsage]
    within = sum(mixed[clusters == each].var(axis=0) * np.mean(clusters == each) for each in range(6))
    assert within == pytest.approx(0.4, rel=0.15)


def test_sessions_repeat_bags_as_often_as_the_spec_says():
    features = (FEATURES[0], replace(FEATURES[1], duplication=0.0), FEATURES[2])
    spec = replace(SPEC, features=features, sessions=SessionSpec(size=10, duplication=0.9))
    samples = read(replace(spec, features=(replace(FEATURES[0], num_embeddings=2**30, zipf=0.0), *features[1:])))[0]
    assert repeated_share(samples.ids["user"]) == pytest.approx(0.9 * 0.9, abs=0.01)
    assert repeated_share(samples.ids["item"]) < 0.05
    first = np.arange(0, 60_000, 10)
    assert np.mean(samples.ids["user"].values[first[1:]] == samples.ids["user"].values[first[1:] - 1]) < 0.01


def test_the_truth_drifts_as_the_spec_says():
    """The same ids under the truths of two times: by how much their logits agree."""
    ids = np.arange(4000)

    def agreement(kind: Any, earlier: int, later: int) -> float:
        teacher = GeneratorSource(replace(SPEC, drift=DriftSpec(kind=kind, samples=1000))).teacher
        vectors = [teacher._vectors("user", ids, np.full(4000, at))[:, 0] for at in (earlier, later)]  # pyright: ignore[reportPrivateUsage]
        return float(np.corrcoef(vectors[0], vectors[1])[0, 1])

    assert agreement("none", 0, 5000) == pytest.approx(1)
    assert agreement("sudden", 0, 999) == pytest.approx(1)
    assert agreement("sudden", 999, 1000) == pytest.approx(0, abs=0.06)
    assert agreement("linear", 0, 500) == pytest.approx(np.sqrt(0.5), abs=0.04)
    assert agreement("linear", 0, 1000) == pytest.approx(0, abs=0.06)
    assert agreement("linear", 1000, 9000) == pytest.approx(1)
    assert agreement("rotating", 0, 125) == pytest.approx(np.sqrt(0.5), abs=0.04)
    assert agreement("rotating", 0, 1000) == pytest.approx(1)
    moved = logits(replace(SPEC, drift=DriftSpec(kind="sudden", samples=30_000)))
    still = logits(SPEC)
    assert np.allclose(moved[:30_000], still[:30_000])
    assert np.corrcoef(moved[30_000:], still[30_000:])[0, 1] < 0.9


def test_labels_stay_drawn_from_the_chances_along_a_drift():
    samples, chances = read(replace(SPEC, drift=DriftSpec(kind="rotating", samples=20_000)))
    errors = samples.labels[:, 0] - chances
    for part in np.array_split(errors, 6):
        assert abs(part.mean()) < 4 * 0.43 / np.sqrt(len(part))


def test_batches_of_the_generator_are_exact():
    dataset = open_dataset(replace(SPEC, first_sample=100, num_samples=10_000))
    assert dataset.num_samples == 10_000
    seen = [int(each) for rank in range(3) for batch in dataset.batches(rank=rank, world_size=3, batch_size=300, seed=1)
            for each in batch.sample_ids]  # fmt: skip
    assert sorted(seen) == list(range(100, 10_100))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"num_samples": 0}, "num_samples is 0; it must be 1 to"),
        ({"features": ()}, "the generator has no features"),
        ({"features": (FEATURES[0], FEATURES[0])}, "the column 'user' is named twice"),
        ({"label": "dense_0"}, "the column 'dense_0' is named twice"),
    ],
)
def test_impossible_specs_are_refused(words: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        replace(SPEC, **words)


def test_impossible_parts_are_refused():
    with pytest.raises(UsageError, match="fixed bags have a whole number of ids; give lengths: poisson"):
        GeneratedFeature(name="a", num_embeddings=5, pooling_factor=1.5)
    with pytest.raises(UsageError, match="are shares of one variance"):
        TeacherSpec(pairs=0.7, dense=0.6)


def logits_of(spec: GeneratorSpec) -> tuple[Batch, np.ndarray[Any, Any]]:
    """Samples of a spec and their planted logits."""
    samples, chances = read(spec)
    return samples, np.log(chances / (1 - chances))


def test_weights_of_dense_values_drift_alone() -> None:
    spec = replace(SPEC, drift=DriftSpec(kind="rotating", samples=60_000, of=("dense",)))
    still, before = logits_of(replace(SPEC, drift=DriftSpec(kind="none")))
    samples, after = logits_of(spec)
    assert all((samples.ids[name].values == still.ids[name].values).all() for name in still.ids)
    assert after[:500] == pytest.approx(before[:500], abs=0.25), "at the beginning the first truth alone"
    half = slice(29_500, 30_500)
    linear = np.linalg.lstsq(np.c_[samples.dense, np.ones(60_000)][half], (after - before)[half], rcond=None)[1]
    total = float(np.var((after - before)[half]) * 1000)
    assert float(linear[0]) < 0.01 * total, "what changed is a weighted sum of dense values, which turns a little here"
    assert after.mean() == pytest.approx(before.mean(), abs=0.1), "the mean logit stays"
    middle = np.corrcoef(after[half] - before[half], before[half])[0, 1]
    assert middle < -0.3, "half a turn later the weights have the other sign"
    _, sudden = logits_of(replace(SPEC, drift=DriftSpec(kind="sudden", samples=20_000, of=("dense",))))
    for first in (0, 20_000, 40_000):
        part = slice(first, first + 20_000)
        values = np.c_[samples.dense, np.ones(60_000)][part]
        assert float(np.linalg.lstsq(values, (sudden - before)[part], rcond=None)[1][0]) < 0.02
    with pytest.raises(UsageError, match="drift of dense wants dense values"):
        replace(spec, dense=0)


def test_popularity_drifts_and_labels_follow_from_rows_as_before() -> None:
    """Rows that are hot at first are not a quarter of a turn later, and are again after half a turn."""

    def hot(samples: Batch, first: int) -> set[int]:
        ids = samples.ids["user"].values[first : first + 4000]
        values, counts = np.unique(ids, return_counts=True)
        return set(values[np.argsort(-counts)][:20].tolist())

    samples, _ = read(replace(SPEC, drift=DriftSpec(kind="rotating", samples=60_000, of=("popularity",))))
    begin, quarter, half = (hot(samples, first) for first in (0, 13_000, 28_000))
    assert len(begin & quarter) <= 4
    assert len(begin & half) >= 16
    still, _ = read(SPEC)
    assert (still.ids["tags"].lengths == samples.ids["tags"].lengths).all(), "bags stay as long"
    sudden, _ = read(replace(SPEC, drift=DriftSpec(kind="sudden", samples=20_000, of=("popularity",))))
    assert len(hot(sudden, 15_000) & hot(sudden, 21_000)) <= 2
    assert len(hot(sudden, 1000) & hot(sudden, 15_000)) >= 16
    with pytest.raises(UsageError, match="drift of popularity and swap both say"):
        replace(SPEC, drift=DriftSpec(kind="linear", of=("popularity",)), swap=SwapSpec(samples=10))


def test_what_drifts_is_named_once() -> None:
    with pytest.raises(UsageError, match=r"drift has of: \['ids', 'ids'\]"):
        DriftSpec(kind="linear", of=("ids", "ids"))
    plain = DriftSpec(kind="rotating", samples=30_000, of=("ids",))
    both = replace(plain, of=("ids", "popularity"))
    _, alone = read(replace(SPEC, drift=plain))
    _, together = read(replace(SPEC, drift=both))
    assert (alone != together).any()
