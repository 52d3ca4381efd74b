"""The planted truth: the probability that a label is 1, from a sample's hidden id vectors and its dense values.

n samples, F features, D dense columns

logit = bias + signal * (a * single + b * paired + c * linear), where a^2 + b^2 + c^2 = 1, and each part has mean 0 and
variance 1 at the beginning of the stream. single: sum of the first numbers of the features' vectors. paired: sum, over
pairs of features, of the dot product of the remaining numbers. linear: weighted sum of the dense values. A feature's
vector is the sum of its ids' vectors / the square root of its pooling factor, so a model of sum-pooled embeddings and
their dot products (DLRM) can learn all of it.
"""

import math
from functools import cached_property

import numpy as np
import numpy.typing as npt

from recsmith._random import Words, buckets, mixed, random_words, salt, uniform
from recsmith._types import Floats, Ints, record
from recsmith.data.batch import Batch, JaggedIds, Singles
from recsmith.data.generator.spec import DriftSpec, GeneratedFeature, GeneratorSpec

Vectors = npt.NDArray[np.float32]
WIDTH = 4  # numbers in a hidden vector, each from 16 bits of a random word
SPREAD = np.float32(np.sqrt(12) / 65536)  # scales a number of 16 random bits to variance 1
HALVINGS = 60  # halvings of the interval in the search for the bias
NEXT_TRUTH = np.uint64(0x9E3779B97F4A7C15)  # difference between the salts of one truth and the next


@record
class LogitScale:
    """Means and factors that scale the logit's parts, and the bias.

    center: mean of each dense column, subtracted if the weights of dense values drift, so that the mean logit stays
    constant; else empty.
    """

    means: tuple[float, ...]
    factors: tuple[float, ...]
    bias: float
    center: tuple[float, ...] = ()


class Teacher:
    """Computes probabilities of labels under the scale that `fit` takes from typical samples."""

    def __init__(self, spec: GeneratorSpec) -> None:
        self.spec = spec
        self.salts = {each.name: np.uint64(salt(spec.seed, "truth", each.name)) for each in spec.features}

    @cached_property
    def dense_weights(self) -> Floats:
        """Weights of the dense columns under the first truth (D,)."""
        return self._dense_weights_of(0)

    def _dense_weights_of(self, truth: int) -> Floats:
        return 2 * uniform(random_words(self.spec.seed, truth, "dense weights", self.spec.dense)) - 1

    def fit(self, typical: Batch) -> LogitScale:
        """The scale that gives typical samples the standard deviation of logits and the mean label of the spec."""
        teacher = self.spec.teacher
        drifts = self.spec.drift.changes("dense")
        center = tuple(typical.dense.mean(axis=0, dtype=np.float64).tolist()) if drifts else ()
        parts = self._parts(typical, np.zeros(len(typical), np.int64), center)
        spreads = parts.std(axis=1)
        shares = np.array([1 - teacher.pairs - teacher.dense, teacher.pairs, teacher.dense])
        shares = np.where(spreads > 1e-6, shares, 0)
        shares = shares / max(shares.sum(), 1e-12)
        factors = teacher.signal * np.sqrt(shares) / np.where(spreads > 1e-6, spreads, 1)
        means = parts.mean(axis=1)
        logits = factors @ (parts - means[:, None])
        return LogitScale(
            means=tuple(means.tolist()),
            factors=tuple(factors.tolist()),
            bias=_bias(logits, teacher.positive_rate),
            center=center,
        )

    def chances(self, samples: Batch, scale: LogitScale) -> Floats:
        """The probability that each sample's label is 1 (n,)."""
        parts = self._parts(samples, samples.sample_ids, scale.center)
        return sigmoid(np.array(scale.factors) @ (parts - np.array(scale.means)[:, None]) + scale.bias)

    def _parts(self, samples: Batch, times: Ints, center: tuple[float, ...]) -> Floats:
        """The three parts of the logit before scaling (3, n). times: the samples' numbers, which determine drift."""
        totals = np.zeros((len(samples), WIDTH), np.float32)
        squares = np.zeros(len(samples), np.float32)
        for feature in self.spec.features:
            hidden = self._hidden(feature, samples.ids[feature.name], times)
            totals += hidden
            squares += _squared(hidden[:, 1:])
        paired = (_squared(totals[:, 1:]) - squares) / 2
        linear = self._linear(samples.dense, times, center)
        return np.stack([totals[:, 0].astype(np.float64), paired.astype(np.float64), linear])

    def _linear(self, dense: Singles, times: Ints, center: tuple[float, ...]) -> Floats:
        """The sum of the dense values, with the weights at each sample's time (n,)."""
        drift = self.spec.drift
        if not drift.changes("dense"):
            return dense @ self.dense_weights
        values = dense - np.array(center)
        if drift.kind == "sudden":
            truths, of_sample = np.unique(times // drift.samples, return_inverse=True)
            weights = np.stack([self._dense_weights_of(int(truth)) for truth in truths])
            return np.einsum("nd,nd->n", values, weights[of_sample])
        before, after = mixture(drift, times)
        return before[:, 0] * (values @ self._dense_weights_of(0)) + after[:, 0] * (values @ self._dense_weights_of(1))

    def _hidden(self, feature: GeneratedFeature, bags: JaggedIds, times: Ints) -> Vectors:
        """The hidden vector of a feature in each sample (n, WIDTH)."""
        single = len(bags.values) == len(bags.lengths) and bool((bags.lengths == 1).all())
        of_ids = self._vectors(feature.name, bags.values, times if single else np.repeat(times, bags.lengths))
        if single:
            return of_ids
        ends = np.cumsum(bags.lengths, dtype=np.int64)
        sums = np.concatenate([np.zeros((1, WIDTH)), np.cumsum(of_ids, axis=0, dtype=np.float64)])
        pooled = sums[ends] - sums[ends - bags.lengths]
        return (pooled / math.sqrt(max(feature.pooling_factor, 1e-9))).astype(np.float32)

    def _vectors(self, name: str, ids: Ints, times: Ints) -> Vectors:
        """The hidden vectors of ids at the times of their samples (number of ids, WIDTH)."""
        drift, first = self.spec.drift, self.salts[name]
        if not drift.changes("ids"):
            return self._of_truth(name, ids, first)
        if drift.kind == "sudden":
            return self._of_truth(name, ids, first + NEXT_TRUTH * (times // drift.samples).astype(np.uint64))
        with np.errstate(over="ignore"):
            second = first + NEXT_TRUTH
        before, after = mixture(drift, times)
        mixed_ = before * self._of_truth(name, ids, first) + after * self._of_truth(name, ids, second)
        return mixed_.astype(np.float32, copy=False)

    def _of_truth(self, name: str, ids: Ints, truth: npt.ArrayLike) -> Vectors:
        """The vectors of ids under a truth, given by its salt (one for all ids or one per id); clusters are applied."""
        salts = mixed(np.asarray(truth, np.uint64).reshape(-1))
        teacher = self.spec.teacher
        if not teacher.clusters:
            return vectors(ids, salts)
        common = vectors(self.clusters(name, ids), ~salts)
        if teacher.similarity >= 1:
            return common
        shared, own = np.sqrt(np.array([teacher.similarity, 1 - teacher.similarity], np.float32))
        return (shared * common + own * vectors(ids, salts)).astype(np.float32, copy=False)

    def clusters(self, name: str, ids: Ints) -> Ints:
        """The planted cluster of each id of a feature; drift does not change it."""
        return buckets(ids, np.asarray(salt(self.spec.seed, "clusters", name), np.uint64), self.spec.teacher.clusters)


def vectors(ids: Ints, salt: Words) -> Vectors:
    """Hidden vectors of ids (n, WIDTH): uniformly distributed numbers of mean 0 and variance 1."""
    words = mixed(mixed(ids.astype(np.uint64) + salt))
    parts = words.astype("<u8").view("<u2").reshape(-1, WIDTH)
    return (parts.astype(np.float32) - np.float32(32767.5)) * SPREAD


def mixture(drift: DriftSpec, times: Ints) -> tuple[Singles, Singles]:
    """Factors of the first and of the second truth at each time (n, 1); their squares add up to 1."""
    along = times / drift.samples
    if drift.kind == "rotating":
        before, after = np.cos(2 * np.pi * along), np.sin(2 * np.pi * along)
    else:
        after = np.minimum(along, 1)
        before = 1 - after
        length = np.hypot(before, after)
        before, after = before / length, after / length
    return before.astype(np.float32)[:, None], after.astype(np.float32)[:, None]


def _squared(hidden: Vectors) -> Singles:
    return np.einsum("nk,nk->n", hidden, hidden)


def sigmoid(logits: Floats) -> Floats:
    """Probabilities of logits."""
    return 1 / (1 + np.exp(-np.clip(logits, -500, 500)))


def _bias(logits: Floats, rate: float) -> float:
    """The bias at which the mean probability is `rate`, by bisection."""
    low, high = -100.0, 100.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if sigmoid(logits + middle).mean() > rate else (middle, high)
    return (low + high) / 2
