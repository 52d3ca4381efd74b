"""The placement environment under Gymnasium's interface."""

import warnings
from typing import Any

import numpy as np
import pytest
from support.cases import cluster, table, workload

from recsmith.costs import cost_model, step_seconds
from recsmith.learning.policies.environment import DEAD_END, placement_environment
from recsmith.planners.placing import items_of
from recsmith.problems import Problem, Space, build_problem
from recsmith.testing.problems import sample_problems

pytest.importorskip("gymnasium")


def environment(problem: Problem) -> Any:
    return placement_environment(problem, cost_model().compile(problem))


@pytest.mark.parametrize("number", [0, 1, 3])
def test_the_checker_of_gymnasium_has_nothing_to_say(number: int) -> None:
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(environment(sample_problems()[number]), skip_render_check=True)


def test_an_episode_ends_with_the_seconds_of_the_plan() -> None:
    problem = sample_problems()[0]
    evaluator, env = cost_model().compile(problem), environment(problem)
    observation, _ = env.reset(seed=3)
    rewards, over, info = [], False, {}
    env.action_space.seed(3)
    while not over:
        assert env.observation_space.contains(observation)
        observation, reward, over, truncated, info = env.step(env.action_space.sample(mask=observation["mask"]))
        rewards.append(reward)
        assert not truncated
    items = items_of(problem, evaluator)
    assert items is not None
    assert len(rewards) == len(items)
    assert rewards[:-1] == [0.0] * (len(rewards) - 1)
    assert -5 < rewards[-1] < 0
    assert not info["dead_end"]
    order = env.unwrapped
    assert np.isfinite(info["step_s"])
    assert info["step_s"] > 0
    assert order is env


def test_rewards_may_be_measured() -> None:
    problem = sample_problems()[0]
    evaluator = cost_model().compile(problem)
    heard: list[float] = []

    def measure(footprint: Any) -> float:
        heard.append(step_seconds(evaluator, footprint))
        return heard[-1]

    env = placement_environment(problem, evaluator, measure)
    env.reset()
    over, info = False, {}
    while not over:
        _, _, over, _, info = env.step(0)
    assert heard == [info["step_s"]]


def test_a_forbidden_device_and_a_dead_end_end_the_episode_without_a_plan() -> None:
    size = 1000 * 64 * 4
    work = workload(*(table(f"t{i}", 1000, 64) for i in range(3)), optimizer="sgd", batch_size=1)
    env = environment(build_problem(work, cluster(hbm=int(1.5 * size)), Space(types=("table_wise",))))
    env.reset()
    env.step(0)
    _, reward, over, _, info = env.step(0)  # device 0 is full
    assert (reward, over, info) == (DEAD_END, True, {"dead_end": True})
    env.reset()
    env.step(0)
    observation, reward, over, _, info = env.step(1)  # both are full, and one table is left
    assert (reward, over, info["dead_end"], observation["mask"].any()) == (DEAD_END, True, True, False)
