"""Specs of generated data: all its parameters, as frozen nouns with a YAML form."""

from pathlib import Path
from typing import Literal

from recsmith._types import noun
from recsmith.data.batch import DataFeature, DataSchema
from recsmith.errors import UsageError, check_rules
from recsmith.workloads import AccessProfile
from recsmith.workloads.sample import table_population

MOST_ROWS = 2**40  # largest num_embeddings of a feature
MOST_SAMPLES = 2**35  # 34 billion; the limit exists because the order of blocks is held in memory
LONGEST_BAG = 10_000  # largest pooling factor, in ids


def _outside(value: float, low: float, high: float, what: str) -> str | None:
    return None if low <= value <= high else f"{what} is {value}; it must be {low:g} to {high:g}"


@noun
class GeneratedFeature:
    """A feature of generated data: ids of num_embeddings rows, drawn from a Zipf distribution.

    pooling_factor: mean number of ids in a bag. lengths: `fixed`: all bags have pooling_factor ids, a whole number; or
        `poisson`.
    zipf: the i-th most read row is read in proportion to i ** -zipf; None takes the exponent that fits Meta's published
        access counts for a table with this many rows and ids (docs/files.md).
    duplication: probability that a sample repeats the bag of the sample before it in its session; None takes that of
        `sessions`.
    weighted: whether ids have weights, drawn uniformly between 0 and 1; labels do not depend on them.
    """

    name: str
    num_embeddings: int
    pooling_factor: float = 1.0
    lengths: Literal["fixed", "poisson"] = "fixed"
    zipf: float | None = None
    duplication: float | None = None
    weighted: bool = False

    def __post_init__(self) -> None:
        what = f"of feature '{self.name}'"
        check_rules(
            _outside(self.num_embeddings, 1, MOST_ROWS, f"num_embeddings {what}"),
            _outside(self.pooling_factor, 0, LONGEST_BAG, f"pooling_factor {what}"),
            None if self.duplication is None else _outside(self.duplication, 0, 1, f"duplication {what}"),
            f"pooling_factor {what} is {self.pooling_factor}, and fixed bags have a whole number of ids; give lengths: "
            "poisson"
            if self.lengths == "fixed" and self.pooling_factor != int(self.pooling_factor)
            else None,
        )
        if self.zipf is not None:
            AccessProfile(zipf=self.zipf)

    @property
    def exponent(self) -> float:
        """The Zipf exponent; a fitted one if none is given."""
        if self.zipf is not None:
            return self.zipf
        return float(table_population().access.zipf(self.num_embeddings, self.pooling_factor))  # pyright: ignore


@noun
class TeacherSpec:
    """The planted truth: the logit of a sample is a known function of its ids' hidden vectors and its dense values.

    signal: standard deviation of the logit; 0 makes labels pure chance. positive_rate: mean label.
    pairs: share of the logit's variance that is due to products of two features' vectors. dense: share that is due to
        the dense values; the remaining share is a sum of one number per id.
    clusters: number of clusters of similar rows in each feature; 0: no clusters, all rows differ.
    similarity: share of a row's vector that it has in common with its cluster; 1: rows of a cluster are the same.
    """

    signal: float = 1.5
    positive_rate: float = 0.25
    pairs: float = 0.3
    dense: float = 0.2
    clusters: int = 0
    similarity: float = 1.0

    def __post_init__(self) -> None:
        check_rules(
            _outside(self.signal, 0, 20, "signal"),
            _outside(self.positive_rate, 0.001, 0.999, "positive_rate"),
            _outside(self.pairs, 0, 1, "pairs"),
            _outside(self.dense, 0, 1, "dense"),
            _outside(self.clusters, 0, MOST_ROWS, "clusters"),
            _outside(self.similarity, 0, 1, "similarity"),
            f"pairs {self.pairs} and dense {self.dense} are shares of one variance; their sum is at most 1"
            if self.pairs + self.dense > 1
            else None,
        )


@noun
class SessionSpec:
    """Sessions of `size` consecutive samples.

    duplication: probability that a sample repeats the bag of the sample before it in its session.
    """

    size: int = 1
    duplication: float = 0.0

    def __post_init__(self) -> None:
        check_rules(
            _outside(self.size, 1, 4096, "size of sessions"),
            _outside(self.duplication, 0, 1, "duplication of sessions"),
        )


@noun
class DriftSpec:
    """How the planted truth changes along the stream of samples.

    linear: from one truth to another within `samples` samples, and constant after that. rotating: from one truth to
    another and back every `samples` samples. sudden: a new truth every `samples` samples.
    of: which parts change: ids, the hidden vectors of rows; dense, the weights of dense values; popularity, which rows
        are read most (the second truth's share of lookups is the square of its factor in the mixture).
    """

    kind: Literal["none", "linear", "rotating", "sudden"] = "none"
    samples: int = 1_000_000
    of: tuple[Literal["ids", "dense", "popularity"], ...] = ("ids",)

    def __post_init__(self) -> None:
        check_rules(
            _outside(self.samples, 1, 2**53, "samples of drift"),
            None
            if self.of and len(set(self.of)) == len(self.of)
            else f"drift has of: {list(self.of)}; name each of ids, dense, popularity at most once, and at least one",
        )

    def changes(self, what: str) -> bool:
        """Whether a part of the stream drifts: ids, dense or popularity."""
        return self.kind != "none" and what in self.of


@noun
class SwapSpec:
    """Changing hot rows: every `samples` samples, rounded up to a block's end, each feature gets other hot rows.

    lengths: `rotate` also gives each feature the pooling factor of the next feature; `stay` leaves pooling factors as
    they are. Labels depend on rows as before.
    """

    samples: int
    lengths: Literal["stay", "rotate"] = "stay"

    def __post_init__(self) -> None:
        check_rules(_outside(self.samples, 1, 2**53, "samples of swap"))


@noun
class GeneratorSpec:
    """Generated data: samples first_sample to first_sample + num_samples - 1 of an endless stream drawn from `seed`.

    Two specs that differ only in first_sample and num_samples are parts of the same stream, such as training and test
    data.
    dense: number of dense columns. swap: changes of the hot rows; none: they stay the same.
    """

    num_samples: int
    features: tuple[GeneratedFeature, ...]
    dense: int = 0
    seed: int = 0
    first_sample: int = 0
    teacher: TeacherSpec = TeacherSpec()
    sessions: SessionSpec = SessionSpec()
    drift: DriftSpec = DriftSpec()
    swap: SwapSpec | None = None
    label: str = "label"

    def __post_init__(self) -> None:
        check_rules(
            _outside(self.num_samples, 1, MOST_SAMPLES, "num_samples"),
            _outside(self.first_sample, 0, 2**53, "first_sample"),
            _outside(self.dense, 0, 10_000, "dense"),
            _outside(self.seed, 0, 2**63 - 1, "seed"),
            None if self.features else "the generator has no features; list at least one",
        )
        self.schema  # noqa: B018 (names are unique)
        if self.drift.changes("dense") and not self.dense:
            raise UsageError(
                "drift of dense wants dense values, and dense is 0; give some, or leave it out of drift.of"
            )
        if self.drift.changes("popularity") and self.swap is not None:
            raise UsageError("drift of popularity and swap both say which rows are hot; leave one of them out")
        rotate = self.swap is not None and self.swap.lengths == "rotate"
        single = next((each.name for each in self.schema.features if each.single), None)
        if rotate and single is not None:
            raise UsageError(
                f"swap.lengths is rotate, and feature '{single}' has one id in every sample; give it lengths: poisson"
            )

    def beside(self, folder: Path) -> "GeneratorSpec":
        """The spec unchanged: it names no files."""
        del folder
        return self

    @property
    def schema(self) -> DataSchema:
        """The schema of the generated samples."""
        features = [
            DataFeature(
                name=each.name,
                num_embeddings=each.num_embeddings,
                pooling_factor=each.pooling_factor,
                single=each.lengths == "fixed" and each.pooling_factor == 1,
                zipf=each.exponent,
                weighted=each.weighted,
            )
            for each in self.features
        ]
        dense = tuple(f"dense_{column}" for column in range(self.dense))
        return DataSchema(features=tuple(features), dense=dense, labels=(self.label,))
