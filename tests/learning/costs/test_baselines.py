"""What learned models are compared with."""

import numpy as np
import pytest
from support.learned import groups

from recsmith.clusters import load_cluster
from recsmith.learning.costs import Origin
from recsmith.learning.costs.baselines import Affine, analytic_factor, analytic_seconds, cluster_of


def test_an_affine_model_learns_what_is_affine() -> None:
    found = groups(200)
    affine = Affine(found).predict(found)
    assert affine.shape == (200, 2)
    assert np.median(np.abs(affine.sum(axis=1) / found.total - 1)) < 0.2


def test_analytic_seconds_grow_with_the_work() -> None:
    found = groups(5)
    seconds = analytic_seconds(found, load_cluster("h100:1"))
    assert seconds.shape == (5, 2)
    assert (seconds > 22 * 3e-6 / 11).all()
    assert analytic_factor(found.seconds, found.seconds / 3) == pytest.approx(3)


@pytest.mark.parametrize(
    ("hardware", "device", "name"),
    [
        ("cpu", "AMD", "cpu"),
        ("simulated:h200", "h200, simulated", "h200"),
        ("cuda", "NVIDIA L4, 58 SMs", "l4"),
        ("cuda", "NVIDIA L40, 142 SMs", None),
    ],
)
def test_the_catalogues_cluster_of_an_origin(hardware: str, device: str, name: str | None) -> None:
    found = cluster_of(Origin(hardware=hardware, device=device, versions=""))
    assert (found and found.device.name) == name
    assert found is None or found.world_size == 1
