"""Models of kernels: a roofline, which a small network corrects by a bounded factor.

    seconds = (latency + bytes / bandwidth + operations / peak) * exp(BEND * tanh(network(inputs) / BEND))

Beyond what was measured the network is cut off at the edge of its inputs and bounded, so the roofline decides. Lin et
al. (HiPC 2022) predict the logarithm of seconds by a network alone.

Legend: K kernels, x inputs, w figures of work.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recsmith._types import Floats
from recsmith.prediction.graph import Kernel
from recsmith.prediction.kernels.inputs import inputs_of, shapes_of, work_of

BEND = 1.5  # the network changes a roofline by at most a factor of e ** BEND = 4.5
REACH = 3.0  # standard deviations at which inputs are cut off
LAYERS = 3


@dataclass(frozen=True)
class KernelModel:
    """The model of a kind: log of the cost of each figure of work (w,), inputs' centre and spread (x,), and layers."""

    kind: str
    base: Floats
    centre: Floats
    spread: Floats
    layers: tuple[tuple[Floats, Floats], ...]

    def seconds(self, shapes: Floats, between: Floats) -> Floats:
        """Seconds (K,) of shapes (K, figures), between (K,) bytes of other data."""
        flow = np.clip((inputs_of(self.kind, shapes, between) - self.centre) / self.spread, -REACH, REACH)
        for weight, bias in self.layers[:-1]:
            flow = np.maximum(flow @ weight.T + bias, 0.0)
        weight, bias = self.layers[-1]
        bent = BEND * np.tanh((flow @ weight.T + bias)[:, 0] / BEND)
        return self.roofline(shapes) * np.exp(bent)

    def roofline(self, shapes: Floats) -> Floats:
        """Seconds (K,) without the network."""
        return work_of(self.kind, shapes) @ np.exp(self.base)


@dataclass(frozen=True)
class Kernels:
    """The models of all kinds of a machine. factors: by which a calibration multiplies kinds."""

    models: dict[str, KernelModel]
    factors: dict[str, float]

    def seconds(self, kernels: Sequence[Kernel]) -> Floats:
        """Seconds (K,) of kernels of any kinds; of a kind without a model, the roofline of element-wise operators."""
        found = np.zeros(len(kernels))
        places: dict[str, list[int]] = {}
        for place, kernel in enumerate(kernels):
            places.setdefault(kernel.kind, []).append(place)
        for kind, chosen in places.items():
            shapes, model = shapes_of([kernels[i] for i in chosen]), self.models.get(kind)
            plain, between = self.models["elementwise"], np.array([kernels[i].between for i in chosen])
            found[chosen] = model.seconds(shapes, between) if model else plain.roofline(_moved(shapes))
            found[chosen] *= self.factors.get(kind, 1.0)
        return found

    def unknown(self, kernels: Sequence[Kernel]) -> dict[str, int]:
        """Kinds without a model, and how many kernels are of each."""
        kinds = [kernel.kind for kernel in kernels if kernel.kind not in self.models]
        return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}


def _moved(shapes: Floats) -> Floats:
    """Shapes (K, 5) of kernels of which only the bytes are known."""
    return np.concatenate([shapes[:, :2], np.ones((len(shapes), 1)), np.zeros((len(shapes), 2))], axis=1)
