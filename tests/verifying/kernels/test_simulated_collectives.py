"""All-to-alls of simulated links around kernels, and what the learned model of them says."""

import numpy as np
import pytest
from support.verified import planned

from recsmith.verifying.kernels.collectives import exchanges_of
from recsmith.verifying.kernels.simulated_collectives import SimulatedCollectives

PLAN = planned("random", seed=3)
KERNELS = np.random.default_rng(0).uniform(1e-3, 2e-3, (2, 4, 2))  # two visits, four ranks


def test_links_without_noise_take_the_same_time_in_every_visit():
    links = SimulatedCollectives("simulated:h100")
    same = links.simulate(PLAN, np.stack([KERNELS[0]] * 2), seed=0)
    assert same.shape == (2, 4, 2)
    assert same[0].tolist() == same[1].tolist()
    assert (same[..., 1] > 0).all()
    noisy = SimulatedCollectives("simulated:h100?noise=0.1")
    assert noisy.simulate(PLAN, np.stack([KERNELS[0]] * 2), seed=0)[0].tolist() != same[0].tolist()


def test_ranks_are_medians_over_visits_and_hold_their_wait():
    links = SimulatedCollectives("simulated:h100")
    comm = links.simulate(PLAN, KERNELS, seed=0)
    found = links.by_rank(PLAN, KERNELS, comm)
    ready = KERNELS.sum(axis=2) + comm[..., 1]
    assert [each.rank for each in found] == [0, 1, 2, 3]
    assert [each.ready_s for each in found] == pytest.approx(np.median(ready, axis=0))
    waits = ready.max(axis=1, keepdims=True) - ready
    assert [each.forward_s for each in found] == pytest.approx(np.median(comm[..., 0] + waits, axis=0))


def test_a_gpu_without_a_model_predicts_nothing():
    links = SimulatedCollectives("simulated:a100-80")
    assert links.predict(PLAN, KERNELS[0]) is None
    assert links.by_rank(PLAN, KERNELS, links.simulate(PLAN, KERNELS, seed=0)) == ()
    predicted = SimulatedCollectives("simulated:h100").predict(PLAN, KERNELS[0])
    assert predicted is not None
    assert predicted.shape == (len(exchanges_of(PLAN)[0].width), 2)
