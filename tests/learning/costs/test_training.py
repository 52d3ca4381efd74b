"""Training, with PyTorch: what it learns, that NumPy computes the same, and how it ends."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.learned import groups

from recsmith.clusters import load_cluster
from recsmith.costs.neural.files import FROM_ANALYTIC, Variant, load_model, save_model, weights_of
from recsmith.costs.neural.inputs import FIRST_INPUTS
from recsmith.costs.pricing import one_device
from recsmith.learning.costs import Groups
from recsmith.learning.costs.baselines import formula_seconds, with_corrected_work
from recsmith.learning.costs.learn import predict

pytest.importorskip("torch")

from support.learned import card

from recsmith.errors import RecSmithError
from recsmith.learning.costs import training
from recsmith.learning.costs.training import CostRecipe, train
from recsmith.learning.training_loop import Epoch

SAMPLES = groups(150)
OTHERS = groups(60, seed=1)


def _error(predicted: Any, measured: Any) -> float:
    return float(np.median(np.abs(predicted.sum(axis=1) / measured.total - 1)))


@pytest.mark.parametrize("variant", ["convex", "linear", "free"])
def test_it_learns_and_numpy_computes_what_pytorch_does(tmp_path: Path, variant: Any) -> None:
    seen: list[Epoch] = []
    network, epochs = train(CostRecipe(variant=variant, epochs=15), SAMPLES, OTHERS, seen.append)
    assert [each.number for each in seen] == list(range(1, epochs + 1))
    assert seen[-1].best == min(each.error for each in seen)
    torch = training.predict(network, OTHERS)
    assert _error(torch, OTHERS) < 0.2
    path = tmp_path / "m.safetensors"
    save_model(str(path), network.tensors(), card(variant=variant))
    numpy = predict(load_model(path)[0], OTHERS)
    assert numpy == pytest.approx(torch, rel=1e-5)


@pytest.mark.parametrize("variant", FROM_ANALYTIC)
def test_it_begins_near_analytic_and_numpy_computes_what_pytorch_does(tmp_path: Path, variant: Variant) -> None:
    samples = with_corrected_work(groups(40), one_device(load_cluster("h100")))
    begun = training._first_network(CostRecipe(variant=variant), samples)  # pyright: ignore[reportPrivateUsage]
    predicted = training.predict(begun, samples)
    analytic = replace(samples, seconds=formula_seconds(samples, one_device(load_cluster("h100"))))
    assert _error(predicted, analytic) < 0.4
    truth = replace(samples, seconds=1.5 * predicted)
    network, _ = train(CostRecipe(variant=variant, epochs=30), truth, truth)
    assert _error(training.predict(network, truth), truth) < 0.05
    path = tmp_path / "m.safetensors"
    save_model(str(path), network.tensors(), card(variant=variant))
    assert predict(load_model(path)[0], truth) == pytest.approx(training.predict(network, truth), rel=1e-5)
    weights = network.tensors()
    falling = bool((weights["behind"] < 0).any() or (weights["gate"] < 0).any())
    assert falling == (variant == "corrected")


def test_a_seed_gives_the_same_weights() -> None:
    one, again, other = (train(CostRecipe(epochs=2, seed=seed), SAMPLES, OTHERS)[0].tensors() for seed in (1, 1, 2))
    assert all((one[name] == again[name]).all() for name in one)
    assert any((one[name] != other[name]).any() for name in one)


def test_a_budget_ends_training() -> None:
    assert train(CostRecipe(epochs=10_000, budget_s=0.2), SAMPLES, OTHERS)[1] < 10_000


def test_ctrl_c_keeps_the_best_so_far() -> None:
    best: list[float] = []

    def stop(epoch: Epoch) -> None:
        best.append(epoch.best)
        if epoch.number == 3:
            raise KeyboardInterrupt

    network, epochs = train(CostRecipe(epochs=50), SAMPLES, OTHERS, stop)
    assert epochs == 3
    mean = np.abs(training.predict(network, OTHERS).sum(axis=1) / OTHERS.total - 1).mean()
    assert mean == pytest.approx(best[-1])


def test_ctrl_c_before_anything_is_learned_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "_loss", stop)
    with pytest.raises(KeyboardInterrupt):
        train(CostRecipe(epochs=2), SAMPLES, OTHERS)


def test_training_that_diverges_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_mean_error", lambda *_: float("nan"))
    with pytest.raises(RecSmithError, match="training diverged"):
        train(CostRecipe(epochs=2), SAMPLES, OTHERS)


def test_a_linear_head_has_no_hinges() -> None:
    network, _ = train(CostRecipe(epochs=2, variant="linear"), SAMPLES, OTHERS)
    head = weights_of(network.tensors(), "linear", "").head
    sums = np.random.default_rng(0).uniform(0, 1, (2, 9, 6))
    assert head.total(sums.sum(axis=0)) == pytest.approx(head.total(sums[0]) + head.total(sums[1]))


@pytest.mark.parametrize("variant", ["convex", "linear", "free"])
def test_a_start_is_the_given_model_brought_to_the_samples(variant: Any) -> None:
    given, _ = train(CostRecipe(variant=variant, epochs=3), SAMPLES, OTHERS)
    begun = training._first_network(  # pyright: ignore[reportPrivateUsage]
        CostRecipe(variant=variant, start=given.tensors()), replace(SAMPLES, seconds=7 * SAMPLES.seconds)
    )
    before, after = training.predict(given, OTHERS), training.predict(begun, OTHERS)
    off = np.median(SAMPLES.total / training.predict(given, SAMPLES).sum(axis=1))
    assert after == pytest.approx(7 * off * before, rel=0.2 if variant == "free" else 1e-3)


def test_few_samples_of_another_device_are_learned_sooner_from_a_start() -> None:
    given, _ = train(CostRecipe(epochs=20), SAMPLES, OTHERS)
    slower = replace(SAMPLES, seconds=2 * SAMPLES.seconds).take(np.arange(len(SAMPLES)) < 40)
    judging = replace(OTHERS, seconds=2 * OTHERS.seconds)
    alone, started = (
        train(CostRecipe(epochs=1, start=start), slower, judging)[0] for start in (None, given.tensors())
    )  # fmt: skip
    assert 2 * _error(training.predict(started, judging), judging) < _error(training.predict(alone, judging), judging)


def _under_adam(samples: Groups) -> Groups:
    """The samples, a third of them under Adam, which takes twice as long."""
    adam = np.arange(len(samples)) % 3 == 0
    inputs = samples.inputs.copy()
    inputs[adam[samples.owner], -1] = 1.0
    seconds = np.where(adam[:, None], 2 * samples.seconds, samples.seconds)
    return replace(samples, inputs=inputs, seconds=seconds, optimizer=np.where(adam, 3, samples.optimizer))


def test_adam_is_learned_beginning_with_a_model_that_does_not_know_it() -> None:
    given, _ = train(CostRecipe(epochs=10), SAMPLES, OTHERS)
    assert len(given.centre) == FIRST_INPUTS
    recipe = CostRecipe(epochs=10, start=given.tensors())
    begun = training._first_network(recipe, _under_adam(SAMPLES))  # pyright: ignore[reportPrivateUsage]
    before, after = training.predict(given, OTHERS), training.predict(begun, _under_adam(OTHERS))
    assert after / before == pytest.approx(np.full(before.shape, (after / before)[0, 0]), rel=1e-3)
    network, _ = train(recipe, _under_adam(SAMPLES), _under_adam(OTHERS))
    assert _error(training.predict(network, _under_adam(OTHERS)), _under_adam(OTHERS)) < 0.15
    again = CostRecipe(epochs=1, start=network.tensors())  # of samples without Adam: it keeps what it knows
    assert len(train(again, SAMPLES, OTHERS)[0].centre) == FIRST_INPUTS + 1
