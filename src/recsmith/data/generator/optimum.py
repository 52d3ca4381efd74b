"""The best that any model can do on generated data, from the planted chances of its labels."""

import numpy as np
import numpy.typing as npt

from recsmith._types import Floats, noun
from recsmith.data.generator.source import GeneratorSource
from recsmith.data.generator.spec import GeneratorSpec

MOST_SAMPLES = 2**20  # that are looked at unless more are asked for: the AUC is then known to about 0.0005


@noun
class Optimum:
    """What a model that knew the planted truth would reach on samples of a spec.

    log_loss is in nats. normalized_entropy: the log loss by that of always saying the positive rate (He et al. 2014).
    """

    samples: int
    positive_rate: float
    auc: float
    log_loss: float
    normalized_entropy: float


def planted_optimum(spec: GeneratorSpec, samples: int = MOST_SAMPLES) -> Optimum:
    """The best possible AUC and log loss on the first samples of a spec, from their chances: labels are not drawn."""
    source = GeneratorSource(spec)
    parts: list[Floats] = []
    for block in range(len(source.sizes())):
        parts.append(source.labelled(block)[1])
        if sum(map(len, parts)) >= samples:
            break
    chances = np.concatenate(parts)[:samples]
    log_loss, rate = float(entropy(chances).mean()), float(chances.mean())
    return Optimum(
        samples=len(chances),
        positive_rate=rate,
        auc=area_under_curve(chances, chances),
        log_loss=log_loss,
        normalized_entropy=log_loss / float(entropy(np.array([rate]))[0]),
    )


def entropy(chances: Floats) -> Floats:
    """The expected log loss of saying the true chance, in nats."""
    inside = np.clip(chances, 1e-300, 1 - 1e-16)
    return -(inside * np.log(inside) + (1 - inside) * np.log1p(-inside))


def area_under_curve(scores: npt.NDArray[np.floating], positive: npt.NDArray[np.floating]) -> float:
    """The chance that a positive sample has a higher score than a negative one; equal scores count one half.

    positive: the label of each sample, or the chance that it is 1; then this is the expected area for many samples.
    """
    _, place = np.unique(scores, return_inverse=True)
    ones, zeros = np.bincount(place, positive), np.bincount(place, 1 - positive)
    below = np.cumsum(zeros) - zeros
    pairs = ones.sum() * zeros.sum()
    return float((ones @ (below + zeros / 2)) / pairs) if pairs else 0.5
