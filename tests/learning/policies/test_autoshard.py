"""Training of AutoShard: the same formulas twice, V-trace, actors that are lost, checkpoints."""

import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.policy_runs import check_that_a_killed_run_goes_on

from recsmith.errors import MissingExtra, RecSmithError, UsageError
from recsmith.learning.policies import PolicySettings
from recsmith.learning.policies.actors import Actors
from recsmith.learning.policies.learn import learn_policy
from recsmith.learning.policies.measured import training_tasks

torch = pytest.importorskip("torch")

SETTINGS = PolicySettings(hardware="simulated:h100", row="2x8", tasks=3)
WORDS: dict[str, Any] = {"iterations": 2, "answers": 3, "episodes": 4, "slots": 40}
SMALL = ["--row", "2x8", "--tasks", "3", "--iterations", "2", "--answers", "3", "--episodes", "4"]


def trained(lose: bool) -> tuple[Any, list[Any]]:
    """A small training; `lose`: an actor is killed after the first iteration."""
    from recsmith.learning.policies.autoshard import AutoShardRecipe, AutoShardTraining

    made, heard = AutoShardTraining(AutoShardRecipe(**WORDS), training_tasks(SETTINGS.draw(3)), SETTINGS), list[Any]()
    running = Actors.__enter__

    def kill_one(iteration: Any) -> None:
        heard.append(iteration)
        if lose and iteration.number == 1:
            actors[0]._running[1].send_signal(signal.SIGKILL)

    actors: list[Actors] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Actors, "__enter__", lambda self: (actors.append(self), running(self))[1])
        made.run(kill_one)
    assert all(each.poll() is not None for each in actors[0]._running)
    return made, heard


@pytest.fixture(scope="module")
def undisturbed() -> Any:
    """A training, its tensors as they were when it ended, and what it told."""
    made, heard = trained(lose=False)
    return made, made.networks.tensors(), made.measured, heard


@pytest.fixture(scope="module")
def training(undisturbed: Any) -> Any:
    return undisturbed[0]


@pytest.fixture(scope="module")
def played(training: Any) -> Any:
    with Actors(SETTINGS, 1) as actors:
        actors.ask(0, 0, training.tasks[2].number, 5, 6, training.networks.frozen().tensors)
        return actors.answer(0)


def test_numpy_and_torch_score_the_same(training: Any, played: Any) -> None:
    with torch.no_grad():
        scores, value, placed = training.scores(2, played)
        outlook = training._outlook(2, played)
    assert placed.all()
    assert value.shape == placed.shape == played.target.T.shape
    np.testing.assert_allclose(scores.numpy(), played.scores, rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(outlook.log_ratio.numpy(), 0.0, atol=1e-2)
    assert np.ptp(played.scores) > 1.0


def test_numpy_and_torch_predict_the_same(training: Any) -> None:
    network, shards = training.networks.frozen(), training.ring[:7]
    with torch.no_grad():
        costs, wanted = training._batch(shards)
    for shard, cost in zip(shards, costs.numpy(), strict=True):
        terms = network.terms(training.tasks[shard.task].items)[shard.items].sum(axis=0)
        np.testing.assert_allclose(cost, network.costs(terms), rtol=1e-3, atol=1e-9)
    assert float((costs.sum(-1) / wanted.sum(-1) - 1).abs().median()) < 0.15


def test_the_ring_holds_the_newest_shards(training: Any, played: Any) -> None:
    assert len(training.ring) == 40 < training.stored
    before, first = training.stored, list(training.ring)
    training._store(2, played)
    fresh = training.stored - before
    changed = [i for i in range(40) if training.ring[i] is not first[i]]
    assert changed == sorted((before + i) % 40 for i in range(fresh))
    items = np.sort(np.concatenate([training.ring[(before + i) % 40].items for i in range(2)]))
    assert items.tolist() == list(range(len(training.tasks[2].items)))  # both devices of the first placement


def test_v_trace_is_the_return_where_chances_agree_and_cuts_where_they_do_not() -> None:
    from recsmith.learning.policies.networks import v_trace

    reward = torch.tensor([[0.0], [0.0], [6.0]])
    value = torch.tensor([[1.0], [2.0], [4.0]])
    target, advantage = v_trace(reward, value, torch.zeros(3, 1))
    assert target.flatten().tolist() == [6.0, 6.0, 6.0]
    assert advantage.flatten().tolist() == [5.0, 4.0, 2.0]
    more, _ = v_trace(reward, value, torch.full((3, 1), 3.0))  # ratios above 1 count as 1
    assert more.flatten().tolist() == [6.0, 6.0, 6.0]
    half, ahead = v_trace(reward, value, torch.tensor([[0.0], [float(np.log(0.5))], [0.0]]))
    assert half.flatten().tolist() == [4.0, 4.0, 6.0]  # 2 + 0.5 * (4 - 2) + 0.5 * (6 - 4)
    assert ahead.flatten().tolist() == [3.0, 2.0, 2.0]


def test_updates_make_what_was_short_more_likely_and_the_baseline_learns(training: Any, played: Any) -> None:
    shown = replace(played, step_s=np.linspace(1.0, 2.0, 6), dead=np.zeros(6, dtype=bool))
    before = training._outlook(2, shown).log_chance.sum(dim=0).detach().numpy()
    errors = [training._improve(2, shown)["value_error"] for _ in range(40)]
    after = training._outlook(2, shown).log_chance.sum(dim=0).detach().numpy()
    assert np.corrcoef(after - before, -shown.step_s)[0, 1] > 0.3
    assert np.mean(errors[-5:]) < np.mean(errors[:5])


def test_a_lost_actor_is_replaced_and_the_run_ends_as_it_would_have(undisturbed: Any) -> None:
    disturbed, heard = trained(lose=True)
    _, tensors, measured, again = undisturbed
    assert [each.lost for each in heard] == [0, 1]
    assert [each.lost for each in again] == [0, 0]
    assert disturbed.measured == measured == 24
    for name, value in tensors.items():
        np.testing.assert_array_equal(disturbed.networks.tensors()[name], value)


def test_actors_that_always_end_are_given_up_and_errors_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    with Actors(replace(SETTINGS, hardware="simulated:nobody"), 1) as actors:
        actors.ask(0, 0, 0, 0, 2, {})
        with pytest.raises(RecSmithError, match="nobody"):
            actors.answer(0)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with Actors(SETTINGS, 1) as actors:
        actors.ask(0, 0, 0, 0, 2, {})
        with pytest.raises(RecSmithError, match=r"3 actors ended one after the other over the same placements"):
            actors.answer(0)


def test_several_actors_on_real_hardware_and_no_torch_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = str(tmp_path / "p.safetensors")
    cpu = PolicySettings(hardware="cpu", row="2x4", tasks=1)
    with pytest.raises(UsageError, match="2 actors would disturb each other's measurements on cpu; give --actors 1"):
        learn_policy("autoshard", cpu, target, {"actors": 2})
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "recsmith.learning.policies.autoshard", raising=False)
    with pytest.raises(MissingExtra, match="training needs PyTorch: pip install"):
        learn_policy("autoshard", SETTINGS, target, dict(WORDS))
    assert not list(tmp_path.iterdir())


def children(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(each) for each in found]


def alive(process: int) -> bool:
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_killed_learner_goes_on_as_it_would_have_and_leaves_no_actor(tmp_path: Path) -> None:
    actors: list[int] = []
    killed = check_that_a_killed_run_goes_on(
        tmp_path, "autoshard", SMALL, "24 placements measured, 2 iterations, measured rewards",
        lambda process: actors.extend(children(process)),
    )  # fmt: skip
    assert len(actors) == 2
    ends = time.monotonic() + 60
    while any(map(alive, actors)) and time.monotonic() < ends:
        time.sleep(0.05)
    assert not any(map(alive, actors))
    with pytest.raises(UsageError, match="holds a run with actors 2 instead of 1; give another --output"):
        learn_policy("autoshard", SETTINGS, str(killed / "p.safetensors"), {**WORDS, "slots": 5000, "actors": 1})
