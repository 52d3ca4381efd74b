"""Side by side placements: masks, and dead ends that are no plans."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cluster, table, workload

from recsmith.costs import cost_model
from recsmith.planners.placing import Episodes, ItemBatch, items_of
from recsmith.planners.search.assignment import NOWHERE
from recsmith.problems import Problem, Space, build_problem, fits

SPACE = Space(types=("table_wise",), kernels=("fused",))
LARGE = 1000 * 64 * 4


def tight(room: float) -> tuple[Problem, ItemBatch]:
    """Three equal tables on two devices of `room` tables each."""
    work = workload(*(table(f"t{i}", 1000, 64) for i in range(3)), optimizer="sgd", batch_size=1)
    problem = build_problem(work, cluster(hbm=int(room * LARGE)), SPACE)
    found = items_of(problem, cost_model().compile(problem))
    assert found is not None
    return problem, found


def test_a_full_device_is_masked() -> None:
    _, items = tight(1.5)
    episodes = Episodes(items, 2)
    assert episodes.room().all()
    episodes.place(np.array([0, 1]))
    assert episodes.room().tolist() == [[False, True], [True, False]]


def test_a_dead_end_leaves_the_item_out_and_marks_the_episode() -> None:
    _, items = tight(1.5)
    episodes = Episodes(items, 1)
    episodes.place(np.array([0]))
    episodes.place(np.array([1]))
    assert not episodes.room().any()
    assert not episodes.place(np.array([0]))[0]
    assert (episodes.done, episodes.dead.tolist(), episodes.target.tolist()) == (True, [True], [[0, 1, NOWHERE]])


@given(st.sampled_from((1.2, 2.2, 3.5)), st.integers(0, 2**32))
def test_no_sequence_of_devices_ever_exceeds_memory(room: float, seed: int) -> None:
    problem, items = tight(room)
    episodes, random = Episodes(items, 4), np.random.default_rng(seed)
    while not episodes.done:
        episodes.place(random.integers(0, 2, 4))
    assert (episodes.free >= 0).all()
    for target, dead in zip(episodes.target, episodes.dead.tolist(), strict=True):
        draft = items.assignment(target)
        assert draft.complete != dead
        assert dead or fits(problem, draft.footprint(problem))
