"""Generates samples block by block: each block depends on the spec and its number alone."""

import hashlib
import json
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from recsmith._random import RowShuffle, Words, ZipfLaw, poisson_lengths, random_words, salt, uniform
from recsmith._types import Floats, Ints, noun
from recsmith.data.batch import Batch, JaggedIds, Singles, concatenated
from recsmith.data.generator.spec import GeneratedFeature, GeneratorSpec
from recsmith.data.generator.teacher import LogitScale, Teacher, mixture
from recsmith.data.source import SampleBlock
from recsmith.files import encode

BLOCK = 4096  # samples in a block, rounded down to whole sessions
TYPICAL = 4  # blocks of samples from which the scale of the logit is estimated
FAR = 2**50  # number of the first of these blocks: no spec has samples there
MEAN_COUNT, SPREAD_COUNT = 2.0, 1.0  # mean and standard deviation of log(count) in dense columns
MOST_SAMPLES = 2**20  # default number of samples for the optimum: the AUC is then known to about 0.0005


class GeneratorSource:
    """The samples of a spec with random access: `read` generates a block, and nothing is stored."""

    settings = GeneratorSpec
    files: tuple[tuple[int, int], ...] = ()
    max_corrupt = 0

    def __init__(self, spec: GeneratorSpec) -> None:
        self.spec, self.schema, self.num_samples = spec, spec.schema, spec.num_samples
        self.block_size = spec.sessions.size * max(1, BLOCK // spec.sessions.size)
        self.teacher = Teacher(spec)
        self._laws = {each.name: ZipfLaw(each.num_embeddings, each.exponent) for each in spec.features}
        self._shuffles = {
            each.name: RowShuffle(each.num_embeddings, salt(spec.seed, "rows", each.name)) for each in spec.features
        }

    @property
    def digest(self) -> str:
        """Digest of the spec; `weighted` is left out if it is false, so that digests of older versions stay valid."""
        described: Any = encode(self.spec)
        for each in described["features"]:
            if not each.get("weighted"):
                each.pop("weighted", None)
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]

    @cached_property
    def scale(self) -> LogitScale:
        """The scale of the logit's parts, fitted on typical samples."""
        typical = [self._inputs(FAR + block) for block in range(TYPICAL)]
        return self.teacher.fit(concatenated(typical))

    def sizes(self) -> Ints:
        """Number of samples in each block; the first and the last block may be partial."""
        first, last = self.spec.first_sample, self.spec.first_sample + self.spec.num_samples
        edges = np.arange(first // self.block_size, -(-last // self.block_size) + 1) * self.block_size
        return np.diff(np.clip(edges, first, last))

    def read(self, block: int) -> SampleBlock:
        """The samples of a block."""
        return SampleBlock(samples=self.labelled(block)[0])

    def labelled(self, block: int) -> tuple[Batch, Floats]:
        """The samples of a block, and the probability of each sample that its label is 1."""
        number = self.spec.first_sample // self.block_size + block
        samples = self._inputs(number)
        first, last = self.spec.first_sample, self.spec.first_sample + self.spec.num_samples
        chances = self.teacher.chances(samples, self.scale)
        drawn = uniform(random_words(self.spec.seed, number, "labels", len(samples)))
        samples.labels[:, 0] = drawn < chances
        wanted = np.flatnonzero((samples.sample_ids >= first) & (samples.sample_ids < last))
        return (samples, chances) if len(wanted) == len(samples) else (samples.take(wanted), chances[wanted])

    def _inputs(self, number: int) -> Batch:
        """All samples of a block of the endless stream, with labels of 0."""
        size = self.block_size
        return Batch(
            dense=self._dense(number),
            ids={each.name: self._bags(each, number) for each in self.spec.features},
            labels=np.zeros((size, 1), np.float32),
            label_names=(self.spec.label,),
            sample_ids=number * size + np.arange(size),
        )

    def _dense(self, number: int) -> Singles:
        """log(1 + count) of counts whose logarithms are nearly normal (B, D), as Criteo's counts are transformed."""
        words = random_words(self.spec.seed, number, "dense", self.block_size * self.spec.dense)
        counts = np.floor(np.exp(MEAN_COUNT + SPREAD_COUNT * _nearly_normal(words)))
        return np.log1p(counts).astype(np.float32).reshape(self.block_size, self.spec.dense)

    def _bags(self, feature: GeneratedFeature, number: int) -> JaggedIds:
        """The bags of a feature: drawn anew, or repeated from the sample before in the session."""
        seed, name, size = self.spec.seed, feature.name, self.block_size
        period = 0 if self.spec.swap is None or number >= FAR else number * self.block_size // self.spec.swap.samples
        feature = self._read_as(feature, period)
        if feature.lengths == "fixed":
            lengths = np.full(size, int(feature.pooling_factor), np.int32)
        else:
            drawn = uniform(random_words(seed, number, f"lengths of {name}", size))
            lengths = poisson_lengths(feature.pooling_factor, drawn).astype(np.int32)
        words = random_words(seed, number, f"ids of {name}", int(lengths.sum(dtype=np.int64)))
        ranks = self._laws[name].ranks(uniform(words))
        if self.spec.drift.changes("popularity") and number < FAR:
            rows = self._drifted(feature, number, ranks, np.repeat(np.arange(size), lengths))
        else:
            rows = self._shuffle(feature, period)(ranks)
        drawn = random_words(seed, number, f"weights of {name}", len(rows)) if feature.weighted else None
        weights = None if drawn is None else uniform(drawn).astype(np.float32)
        bags = JaggedIds(values=rows, lengths=lengths, weights=weights)
        repeated = self.spec.sessions.duplication if feature.duplication is None else feature.duplication
        return (
            bags.take(self._drawn_at(name, number, repeated)) if repeated > 0 and self.spec.sessions.size > 1 else bags
        )

    def _shuffle(self, feature: GeneratedFeature, period: int) -> RowShuffle:
        """The permutation from popularity ranks to rows in a period: its number of changes of the hot rows."""
        if not period:
            return self._shuffles[feature.name]
        return RowShuffle(feature.num_embeddings, salt(self.spec.seed, "rows", f"{feature.name} {period}"))

    def _drifted(self, feature: GeneratedFeature, number: int, ranks: Ints, samples: Ints) -> Ints:
        """Rows for popularity ranks under drift, at the time of each rank's sample. samples: rows of the block."""
        drift, times = self.spec.drift, number * self.block_size + samples
        if drift.kind == "sudden":
            orders = times // drift.samples
        else:
            drawn = uniform(random_words(self.spec.seed, number, f"popularity of {feature.name}", len(ranks)))
            orders = (drawn < mixture(drift, times)[1][:, 0].astype(np.float64) ** 2).astype(np.int64)
        rows = np.empty_like(ranks)
        for order in np.unique(orders).tolist():
            rows[orders == order] = self._shuffle(feature, order)(ranks[orders == order])
        return rows

    def _read_as(self, feature: GeneratedFeature, period: int) -> GeneratedFeature:
        """The feature with the bag lengths that it has in a period."""
        if self.spec.swap is None or self.spec.swap.lengths == "stay":
            return feature
        features = self.spec.features
        other = features[(features.index(feature) + period) % len(features)]
        return replace(feature, pooling_factor=other.pooling_factor, lengths=other.lengths)

    def _drawn_at(self, name: str, number: int, repeated: float) -> Ints:
        """For each sample, the sample whose bag it repeats: the last one of its session whose bag was drawn anew."""
        at = np.arange(self.block_size)
        anew = uniform(random_words(self.spec.seed, number, f"repeats of {name}", len(at))) >= repeated
        anew |= at % self.spec.sessions.size == 0
        return np.maximum.accumulate(np.where(anew, at, 0))


def _nearly_normal(words: Words) -> Floats:
    """Numbers of mean 0 and variance 1: the sum of four uniform numbers, the 16-bit parts of each random word."""
    parts = words.astype("<u8").view("<u2").reshape(-1, 4)
    return (parts.sum(axis=1) / 65536 - 2 + 2 / 65536) * np.sqrt(3)


@noun
class Optimum:
    """The scores that a model which knows the planted truth would reach on samples of a spec.

    log_loss is in nats. normalized_entropy: log loss / log loss of always predicting the positive rate (He et al.
    2014).
    """

    samples: int
    positive_rate: float
    auc: float
    log_loss: float
    normalized_entropy: float


def planted_optimum(spec: GeneratorSpec, samples: int = MOST_SAMPLES) -> Optimum:
    """The best possible AUC and log loss on a spec's first samples, expected over their labels' probabilities."""
    source = GeneratorSource(spec)
    parts: list[Floats] = []
    for block in range(len(source.sizes())):
        parts.append(source.labelled(block)[1])
        if sum(map(len, parts)) >= samples:
            break
    chances = np.concatenate(parts)[:samples]
    log_loss, rate = float(entropy(chances).mean()), float(chances.mean())
    return Optimum(
        samples=len(chances), positive_rate=rate, auc=area_under_curve(chances, chances), log_loss=log_loss,
        normalized_entropy=log_loss / float(entropy(np.array([rate]))[0]),
    )  # fmt: skip


def entropy(chances: Floats) -> Floats:
    """The expected log loss of predicting the true probability, in nats: the binary entropy."""
    inside = np.clip(chances, 1e-300, 1 - 1e-16)
    return -(inside * np.log(inside) + (1 - inside) * np.log1p(-inside))


def area_under_curve(scores: npt.NDArray[np.floating], positive: npt.NDArray[np.floating]) -> float:
    """The AUC: probability that a positive sample has a higher score than a negative one; equal scores count one half.

    positive: the label of each sample, or the probability that it is 1; the result is then the expected AUC for many
    samples.
    """
    _, place = np.unique(scores, return_inverse=True)
    ones, zeros = np.bincount(place, positive), np.bincount(place, 1 - positive)
    below = np.cumsum(zeros) - zeros
    pairs = ones.sum() * zeros.sum()
    return float((ones @ (below + zeros / 2)) / pairs) if pairs else 0.5
