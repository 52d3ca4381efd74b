"""The recurrent network: its gradient against differences, and that no device without room is drawn."""

import numpy as np
import pytest
from per_problem_cases import problem_of_room

from recsmith.costs import cost_model
from recsmith.planners.placing import ItemBatch, items_of
from recsmith_per_problem.arrays import Floats, Ints
from recsmith_per_problem.rnn_network import DrawnEpisodes, Tensors, draw, first_tensors, gradient

ENTROPY, EPISODES, STEP = 0.3, 4, 1e-5


def items_of_tables(room: float) -> ItemBatch:
    """Seven tables on three devices that hold `room` of their even share each."""
    problem = problem_of_room(room)
    items = items_of(problem, cost_model().compile(problem))
    assert items is not None
    return items


class Repeats(np.random.Generator):
    """Draws given devices (E, N) again, whatever the chances are."""

    def __init__(self, target: Ints) -> None:
        super().__init__(np.random.PCG64(0))
        self.left = list(target.T)

    def gumbel(self, loc: object = 0.0, scale: object = 1.0, size: object = None) -> Floats:  # type: ignore[override]
        device = self.left.pop(0)
        noise = np.zeros(size)  # type: ignore[call-overload]
        noise[np.arange(len(device)), device] = np.where(device >= 0, 1e9, 0.0)
        return noise


def loss(tensors: Tensors, features: Floats, items: ItemBatch, target: Ints, advantage: Floats) -> float:
    """What the gradient is of, without the steps at which nothing had room."""
    drawn = draw(tensors, features, items, EPISODES, Repeats(target))
    assert (drawn.target == target).all()
    placed = target.T >= 0
    chance = np.take_along_axis(drawn.chance, np.maximum(target.T, 0)[..., None], axis=2)[..., 0]
    even = -(drawn.chance * np.log(np.maximum(drawn.chance, 1e-300))).sum(axis=-1)
    log = np.log(np.where(placed, chance, 1.0)).sum(axis=0)
    return float((-advantage * log - ENTROPY * (even * placed).sum(axis=0)).mean())


@pytest.mark.parametrize("room", [3.0, 1.05])
def test_the_gradient_is_that_of_differences(room: float) -> None:
    random, items = np.random.default_rng(1), items_of_tables(room)
    features, advantage = random.normal(size=(len(items), 5)), random.normal(size=EPISODES)
    tensors = first_tensors(5, 3, random)
    drawn: DrawnEpisodes = draw(tensors, features, items, EPISODES, random)
    slope = gradient(tensors, features, drawn, advantage, ENTROPY)
    for name, tensor in tensors.items():
        for place in random.integers(0, tensor.size, 8).tolist():
            before, around = tensor.flat[place], []
            for step in (STEP, -STEP):
                tensor.flat[place] = before + step
                around.append(loss(tensors, features, items, drawn.target, advantage))
            tensor.flat[place] = before
            assert slope[name].flat[place] == pytest.approx((around[0] - around[1]) / 2 / STEP, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize(("room", "dead"), [(3.0, 0), (1.05, 64)])
def test_only_devices_with_room_are_drawn_and_dead_ends_are_marked(room: float, dead: int) -> None:
    random, items = np.random.default_rng(2), items_of_tables(room)
    drawn = draw(first_tensors(5, 3, random), np.zeros((7, 5)), items, 64, random)
    held = (drawn.target[:, :, None] == np.arange(3)) * items.bytes[:, None]
    assert (held.sum(axis=1) <= items.free).all()
    assert drawn.dead.sum() == dead
    assert (drawn.dead == (drawn.target < 0).any(axis=1)).all()
