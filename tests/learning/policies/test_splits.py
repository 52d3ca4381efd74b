"""Training of the policy of what is split: the same formula twice, what it learns from, and runs that go on."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.policy_runs import check_that_a_killed_run_goes_on

from recsmith.errors import CorruptFile, MissingExtra, UsageError
from recsmith.learning.policies import SplitRecipe, SplitSettings
from recsmith.learning.policies.learn import CHECKPOINT, RunFolder, learn_splits
from recsmith.planners.placing.split_policy import FIGURES

torch = pytest.importorskip("torch")

SMALL = SplitSettings(cost_model="analytic", sizes=("2x10", "4x12"), tasks=2)
RECIPE = SplitRecipe(iterations=2, searched=3, width=4, rounds=2, imitation=30, batch=32, updates=4, episodes=6)


@pytest.fixture(scope="module")
def training() -> Any:
    from recsmith.learning.policies.splits import SplitTraining, split_tasks

    made = SplitTraining(RECIPE, split_tasks(SMALL.draw(2), "analytic"))
    made.run(lambda _: None)
    return made


def test_numpy_and_torch_say_the_same(training: Any) -> None:
    figures = np.random.default_rng(0).normal(size=(50, FIGURES))
    with torch.no_grad():
        odds = training.odds(torch.as_tensor(figures, dtype=torch.float32)).numpy()
    np.testing.assert_allclose(odds, training.frozen().log_odds(figures), rtol=1e-4, atol=1e-5)


def test_search_is_ahead_of_longest_first_and_its_best_episode_can_be_played_again(training: Any) -> None:
    assert max(each.gain for each in training.examples.values()) > 0
    for index, best in training.examples.items():
        task = training.tasks[index]
        split = np.zeros(len(task.priced.alone), dtype=bool)
        split[best.shape] = best.split
        again = task.priced.play(1, lambda rows, s, _, split=split: np.full(len(rows), split[s]))
        assert task.gains(again.step_s)[0] == pytest.approx(best.gain, abs=1e-12)


def test_imitation_decides_as_the_best_episodes_did(training: Any) -> None:
    before = training._imitate(np.random.default_rng(0))
    for _ in range(5):
        after = training._imitate(np.random.default_rng(1))
    assert after < 0.9 * before


def test_reinforcement_makes_what_was_ahead_likelier(training: Any) -> None:
    ended = training.tasks[0].priced.play(8, training.frozen().drawn(np.random.default_rng(3)))
    made, ahead = ended.decisions, np.arange(8) - 3.5

    def chances() -> Any:
        odds = training.frozen().log_odds(made.figures)
        each = -np.logaddexp(0.0, np.where(made.split, -odds, odds))
        return np.bincount(made.episode, each, minlength=8)

    before = chances()
    for _ in range(60):
        training._update(made, ahead)
    assert np.corrcoef(chances() - before, ahead)[0, 1] > 0.3


def test_a_killed_run_goes_on_and_ends_as_it_would_have(tmp_path: Path) -> None:
    words = ["--cost-model", "analytic", "--sizes", "2x10,4x12", "--tasks", "2", "--iterations", "2", "--updates", "4"]
    killed = check_that_a_killed_run_goes_on(tmp_path, "splits", words, "4 tasks of 2x10, 4x12; 2 iterations")
    with pytest.raises(UsageError, match=r"holds a run with .*; give another --output"):
        learn_splits(SMALL, str(killed / "p.safetensors"), {"seed": 1})


@pytest.mark.parametrize("fault", ["iteration", "weight", "adam", "example", "shape"])
def test_a_checkpoint_that_lacks_something_is_one_sentence(training: Any, tmp_path: Path, fault: str) -> None:
    from safetensors.numpy import save_file

    from recsmith.learning.policies.splits import SplitTraining

    run, kept = RunFolder(tmp_path, {"schema": "recsmith/splits-run/1"}), training.state()
    example = f"example.{next(iter(training.examples))}.gain"
    names = {"weight": "split0", "adam": "adam.split0.exp_avg", "example": example}
    if fault in names:
        del kept[names[fault]]
    if fault == "shape":
        kept["split1"] = kept["split1"][:, :1]  # which PyTorch would copy into every column
    save_file(kept, tmp_path / CHECKPOINT, {"iteration": '"x"' if fault == "iteration" else "2"})
    with pytest.raises(CorruptFile, match=r"safetensors' is no whole checkpoint \(.*; remove it, and training begins"):
        run.restore(SplitTraining(RECIPE, training.tasks))


def test_a_training_without_updates_is_kept_and_restored(training: Any) -> None:
    from recsmith.learning.policies.splits import SplitTraining

    first, other = SplitTraining(RECIPE, training.tasks), SplitTraining(replace(RECIPE, seed=1), training.tasks)
    other._imitate(np.random.default_rng(0))
    other.restore(first.state(), 1)
    assert other.frozen().log_odds(np.ones((1, FIGURES))) == first.frozen().log_odds(np.ones((1, FIGURES)))
    assert other.state().keys() == first.state().keys()


def test_what_cannot_be_trained_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = str(tmp_path / "p.safetensors")
    with pytest.raises(UsageError, match="'9x9x9' is no row"):
        SplitSettings(sizes=("9x9x9",))
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "recsmith.learning.policies.splits", raising=False)
    with pytest.raises(MissingExtra, match="training needs PyTorch: pip install"):
        learn_splits(SMALL, target, {})
    assert not list(tmp_path.iterdir())
