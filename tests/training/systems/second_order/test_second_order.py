"""A flat view says what autograd says; progressive L-BFGS and DANCE keep what they promise."""

import itertools
import math
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torchrec")

import torch
from torch import nn
from torch.func import functional_call

from recsmith.errors import UsageError
from recsmith.jobs.launch import launch
from recsmith.training.systems.second_order.dance import DanceSettings, conjugate_gradients, dance, newton, stages
from recsmith.training.systems.second_order.flat import AskedToEnd, DampedLoss, FlatLayers
from recsmith.training.systems.second_order.progressive_lbfgs import LbfgsSettings, ProgressiveLbfgs
from recsmith.units import format_time

pytestmark = pytest.mark.usefixtures("torchrec")
COLUMNS, PART = 5, 64


def a_problem(samples: int = 256) -> list[Any]:
    """Inputs and labels in parts."""
    draws = torch.Generator().manual_seed(3)
    inputs = torch.randn(samples, COLUMNS, generator=draws, dtype=torch.float64)
    chances = torch.sigmoid(inputs @ torch.arange(1, COLUMNS + 1, dtype=torch.float64) * 0.3)
    labels = (torch.rand(samples, generator=draws, dtype=torch.float64) < chances).double()
    return list(zip(inputs.split(PART), labels.split(PART), strict=True))


def a_network(*, hidden: int | None = 3) -> tuple[nn.Module, FlatLayers]:
    """Layers in float64, and as a vector."""
    torch.manual_seed(0)
    inner = [nn.Linear(COLUMNS, hidden), nn.Tanh()] if hidden else []
    model = nn.Sequential(*inner, nn.Linear(hidden or COLUMNS, 1)).double()

    def losses(parameters: Any, part: Any) -> torch.Tensor:
        logits = functional_call(model, dict(parameters), (part[0],))[:, 0]
        return nn.functional.binary_cross_entropy_with_logits(logits, part[1], reduction="none")

    return model, FlatLayers(dict(model.named_parameters()), losses)


def whole_loss(model: nn.Module, parts: list[Any]) -> torch.Tensor:
    """The mean loss by autograd's own way."""
    inputs, labels = (torch.cat(each) for each in zip(*parts, strict=True))
    return nn.functional.binary_cross_entropy_with_logits(model(inputs)[:, 0], labels)


def test_a_flat_view_says_what_autograd_says() -> None:
    model, layers = a_network()
    parts, weights = a_problem(), layers.weights()
    loss = whole_loss(model, parts)
    slopes = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    slope = torch.cat([each.reshape(-1) for each in slopes])
    vector = torch.randn_like(weights)
    product = torch.cat([each.reshape(-1) for each in torch.autograd.grad(slope @ vector, list(model.parameters()))])
    value, found = layers.gradient(weights, parts)
    assert value == pytest.approx(loss.item(), rel=1e-12)
    assert layers.loss(weights, parts) == pytest.approx(loss.item(), rel=1e-12)
    assert torch.allclose(found, slope.detach(), rtol=0, atol=1e-14)
    assert torch.allclose(layers.times_hessian(weights, parts, vector), product, rtol=0, atol=1e-14)
    dots = layers.sample_dots(weights, parts, vector)
    assert len(dots) == 256
    assert float(dots.mean()) == pytest.approx((slope @ vector).item(), rel=1e-10)
    first = [torch.autograd.grad(whole_loss(model, [(parts[0][0][:1], parts[0][1][:1])]), list(model.parameters()))]
    assert float(dots[0]) == pytest.approx((torch.cat([g.reshape(-1) for g in first[0]]) @ vector).item(), rel=1e-10)
    mean, variance = layers.moments(dots)
    assert (mean, variance) == pytest.approx((float(dots.mean()), float(dots.var())), rel=1e-9)
    layers.put(weights + 1)
    assert torch.equal(layers.weights(), weights + 1)


def test_a_damped_loss_has_its_own_derivatives() -> None:
    _, layers = a_network()
    parts, weights = a_problem(), layers.weights()
    damped = DampedLoss(layers, parts, 0.3, torch.ones_like(weights))
    _, slope = damped.gradient(weights)
    step = 1e-6 * torch.randn_like(weights)
    assert damped.value(weights + step) - damped.value(weights - step) == pytest.approx(
        2 * float(slope @ step), rel=1e-5
    )
    _, ahead = damped.gradient(weights + step)
    _, behind = damped.gradient(weights - step)
    assert torch.allclose(damped.times_hessian(weights, step), (ahead - behind) / 2, rtol=1e-4, atol=1e-12)


def test_newton_solves_a_convex_problem_and_its_bound_holds() -> None:
    _, layers = a_network(hidden=None)
    damped = DampedLoss(layers, a_problem(), 0.01)
    rough = newton(damped, least=1e-2, settings=DanceSettings())
    there = layers.weights()
    told = list[tuple[int, float]]()
    fine = newton(damped, least=1e-10, settings=DanceSettings(newton=50), stepped=lambda *each: told.append(each))
    assert [steps for steps, _ in told] == list(range(1, fine.steps + 1))
    assert told[-1][1] == fine.loss
    assert (rough.solved, fine.solved) == (True, True)
    assert fine.norm <= 1e-10
    assert fine.loss <= rough.loss <= fine.loss + rough.norm**2 / (2 * 0.01)
    assert not torch.equal(layers.weights(), there)


def test_conjugate_gradients_solve_and_stop_where_curvature_is_not_positive() -> None:
    class Quadratic:
        def __init__(self, diagonal: list[float]) -> None:
            self.diagonal = torch.tensor(diagonal, dtype=torch.float64)

        def times_hessian(self, _: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
            return self.diagonal * vector

    slope = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    bowl: Any = Quadratic([1.0, 4.0, 9.0])
    found, squared, products = conjugate_gradients(bowl, slope, slope, DanceSettings(beta=1e-9))
    assert torch.allclose(found, slope / bowl.diagonal, rtol=1e-9)
    assert squared == pytest.approx(float(slope @ found), rel=1e-9)
    assert products <= 4
    for diagonal in ([-1.0, -1.0, -1.0], [0.0, 0.0, 0.0], [math.nan] * 3):
        saddle: Any = Quadratic(diagonal)
        found, squared, products = conjugate_gradients(saddle, slope, slope, DanceSettings())
        assert torch.equal(found, slope)
        assert (squared, products) == (0.0, 1)


def test_stages_end_with_all_samples() -> None:
    assert list(stages(100, 1000, 2.0)) == [100, 200, 400, 800, 1000]
    assert list(stages(5000, 1000, 2.0)) == [1000]


def test_dance_lowers_a_network_s_loss() -> None:
    _, layers = a_network()
    parts = a_problem()
    begun = layers.loss(layers.weights(), parts)
    made = dance(layers, parts, [PART] * len(parts), first=64, settings=DanceSettings(c=0.01, inner=8, newton=4))
    assert len(made) == 3
    assert all(math.isfinite(each.norm) and not each.failed for each in made)
    assert layers.loss(layers.weights(), parts) < begun - 0.05


def test_l_bfgs_on_all_samples_is_quasi_newton() -> None:
    """Its loss falls in each step, and to a far smaller gradient than steepest descent's in as many."""
    _, layers = a_network(hidden=None)
    parts, method, losses = a_problem(), ProgressiveLbfgs(), list[float]()
    damped = DampedLoss(layers, parts, 1e-3)
    for _ in range(20):
        losses.append(method.step(damped, 256, parts[:2], 256).loss)
    assert all(after < before for before, after in itertools.pairwise(losses) if before - losses[-1] > 1e-12)
    assert float(damped.gradient(layers.weights())[1].norm()) < 1e-5
    moved, turned = method.pairs[-1]
    assert torch.allclose(method.direction(turned), moved, rtol=1e-6, atol=1e-12)  # the secant equation


def test_samples_grow_with_noise_and_never_shrink() -> None:
    _, layers = a_network(hidden=None)
    parts = a_problem()
    seen = [PART]
    method = ProgressiveLbfgs(LbfgsSettings(growth=2.0))
    for _ in range(12):
        count = min(-(-seen[-1] // PART), len(parts))
        seen.append(max(seen[-1], method.step(DampedLoss(layers, parts[:count], 1e-3), seen[-1], parts[:1]).wanted))
    assert all(before <= after <= 2 * before for before, after in itertools.pairwise(seen))
    assert seen[-1] > seen[0]
    never = ProgressiveLbfgs(LbfgsSettings(theta=1e9))
    assert never.step(DampedLoss(layers, parts, 1e-3), 256, parts[:1]).wanted == 256


def test_a_line_search_that_fails_gives_the_weights_back() -> None:
    _, layers = a_network(hidden=None)
    weights = layers.weights()

    class Wrong(DampedLoss):
        """Its loss rises along the gradient that it tells."""

        def gradient(self, at: torch.Tensor) -> tuple[float, torch.Tensor]:
            loss, slope = super().gradient(at)
            return loss, -slope

    parts = a_problem()
    outcome = ProgressiveLbfgs().step(Wrong(layers, parts, 0.1), 256, parts[:1])
    assert (outcome.rate, outcome.wanted) == (0.0, 512)
    assert torch.equal(layers.weights(), weights)
    found = newton(Wrong(layers, parts, 0.1), least=1e-6, settings=DanceSettings())
    assert (found.failed, found.solved, found.steps) == (True, False, 0)
    assert torch.equal(layers.weights(), weights)


def test_losses_that_are_not_finite_move_nothing() -> None:
    _, layers = a_network(hidden=None)
    weights = layers.weights()
    parts = [(each[0] * math.nan, each[1]) for each in a_problem()]
    outcome = ProgressiveLbfgs().step(DampedLoss(layers, parts), 256, parts[:1])
    assert outcome.rate == 0
    assert newton(DampedLoss(layers, parts), least=1e-6, settings=DanceSettings()).steps == 0
    assert torch.equal(layers.weights(), weights)


@pytest.mark.parametrize(
    ("noun", "settings", "words"),
    [
        (LbfgsSettings, {"memory": 0}, "memory is 0; it must be at least 1"),
        (LbfgsSettings, {"theta": 0.0}, r"theta is 0\.0; it must be above 0"),
        (LbfgsSettings, {"growth": 1.0}, r"growth is 1\.0; it must be above 1"),
        (DanceSettings, {"gamma": 0.4}, r"gamma is 0\.4; it lies from 0\.5 to 1"),
        (DanceSettings, {"beta": 1.0}, r"beta is 1\.0; it lies between 0 and 1"),
        (DanceSettings, {"c": 0.0}, r"c is 0\.0; it must be above 0"),
        (DanceSettings, {"inner": 0}, "inner is 0"),
    ],
)
def test_settings_out_of_range_are_named(noun: Any, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        noun(**settings)


def iterates(rank: int, world: int) -> dict[str, list[float]]:
    """Weights after both methods, where a rank has each world-th sample."""
    mine = [(inputs[rank::world], labels[rank::world]) for inputs, labels in a_problem()]
    _, layers = a_network()
    dance(layers, mine, [PART] * len(mine), first=64, settings=DanceSettings())
    _, others = a_network()
    method = ProgressiveLbfgs()
    for _ in range(8):
        method.step(DampedLoss(others, mine, 1e-3), 256, mine[:2])
    return {"dance": layers.weights().tolist(), "lbfgs": others.weights().tolist()}


def asked_on_rank() -> list[dict[str, Any]]:
    """What a rank is left with where rank 1 is asked to end before the first gradient, and within a Newton step."""
    return [_asked_after(looks) for looks in (2, 60)]


def _asked_after(after: int) -> dict[str, Any]:
    import torch.distributed as dist

    rank, world, looks = dist.get_rank(), dist.get_world_size(), itertools.count()
    mine = [(inputs[rank::world], labels[rank::world]) for inputs, labels in a_problem()]
    _, layers = a_network()
    layers.asked = lambda: rank == 1 and next(looks) >= after
    before = layers.weights()
    try:
        steps = newton(DampedLoss(layers, mine, 0.01), least=1e-9, settings=DanceSettings(newton=20))
    except AskedToEnd:
        return {"steps": None, "moved": not torch.equal(layers.weights(), before)}
    return {"steps": steps.steps, "ended": steps.ended, "weights": layers.weights().tolist()}


def test_all_ranks_give_up_the_same_newton_step_where_one_is_asked_to_end() -> None:
    place = "training.systems.second_order.test_second_order:asked_on_rank"
    (early, late), other = launch(place, {}, ranks=2)
    assert other == [early, late]
    assert early == {"steps": None, "moved": False}
    assert late["ended"]
    assert 0 < late["steps"] < 20
    _, layers = a_network()
    newton(DampedLoss(layers, a_problem(), 0.01), least=1e-9, settings=DanceSettings(newton=late["steps"]))
    assert np.allclose(late["weights"], layers.weights().tolist(), rtol=0, atol=1e-6)


def on_rank() -> dict[str, Any]:
    """Of this rank."""
    import torch.distributed as dist

    return iterates(dist.get_rank(), dist.get_world_size())


def test_ranks_take_the_steps_of_one() -> None:
    alone, ranks = iterates(0, 1), launch("training.systems.second_order.test_second_order:on_rank", {}, ranks=2)
    assert ranks[0] == ranks[1]
    for name, weights in alone.items():
        assert np.isfinite(weights).all()
        assert np.allclose(ranks[0][name], weights, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"name": "dance", "gamma": 2.0}, "pipeline.gamma is 2.0; it lies from 0.5 to 1"),
        ({"name": "progressive_lbfgs", "samples": 0}, "pipeline.samples is 0; it must be at least 1"),
        ({"name": "progressive_lbfgs", "tables": "rest", "theta": 0.0}, "theta is 0.0; it must be above 0"),
    ],
)
def test_steps_out_of_range_are_named_before_there_is_a_job(settings: dict[str, Any], words: str) -> None:
    from recsmith._components import find
    from recsmith.training.seams import STEP

    name = settings.pop("name")
    with pytest.raises(UsageError, match=re.escape(words)):
        find(STEP, name).check_settings(**settings)  # type: ignore[attr-defined]


SET = ("optimizers.dense.learning_rate=777", "optimizers.dense.clip_norm=1e-9", "optimizers.dense.name=sgd")


@pytest.mark.parametrize("pipeline", ["dance", "progressive_lbfgs"])
def test_settings_that_a_step_would_ignore_are_refused_before_anything_is_trained(pipeline: str) -> None:
    from recsmith.training.launch.launching import dry_run

    run = a_run(pipeline)
    for setting in SET:
        with pytest.raises(
            UsageError, match=rf"by a line search .* would not use {setting.partition('=')[0]}; leave it"
        ):
            dry_run(run, (setting,))
    for setting in ("optimizers.sparse.learning_rate=3", "optimizers.warmup_steps=5"):
        if pipeline == "dance":  # under which tables rest
            with pytest.raises(
                UsageError, match=rf"lets tables rest and would not use {setting.partition('=')[0]}; leave"
            ):
                dry_run(run, (setting,))
            dry_run(run, (setting, f"{setting.rpartition('.')[0]}=null"))
        else:
            dry_run(run, (setting,))


def test_what_a_step_takes_is_told_before() -> None:
    from recsmith.training.launch.dry_run import described

    made = described(a_run("dance"), ("pipeline={name: dance, newton: 2, inner: 5}",))
    assert any(line.endswith("tables rest, dance for the rest") for line in made.lines)
    assert made.step is not None
    line, quality, times, whole = (each for each in made.lines if each.startswith(("pipeline dance", "quality")))
    assert "has 4,100 samples and passes over them about 19 times, " in line, "1 + 2 (4 products of 2 + 1), 205 batches"
    assert "at most 45;" in line, "1 + 2 (5 products of 2 + 12 gradients)"
    assert "dance was 0.0192 ± 0.0080 of log loss above Adam" in quality
    assert f"the first step takes about {format_time(made.step.step_s)}, at most " in times
    assert "up to 2 times as many each time, and at most 256 batches a rank" in line
    kept = 256 * 20 * (4 * 4 + 8)
    assert f"ids take {kept / 1024:.4g} KiB" in line
    assert "pipeline: dance" not in made.lines
    plain = described(a_run("base"))
    assert plain.step is not None
    assert times.endswith(f" in {format_time(205 * plain.step.step_s)}")
    assert made.memory[0].total - plain.memory[0].total >= kept
    assert made.step.error == 1.0
    assert made.step.trainer_s == 205 * plain.step.trainer_s
    assert made.step.optimizer_s == 0
    assert made.step.layers_s == pytest.approx(205 * (plain.step.layers_s * (1 / 3 + 19 * 1.7) + 19 * 1.3e-3))
    assert f"the first step takes {made.step}" in made.lines
    assert whole.startswith("pipeline dance: 1 epoch makes 1 step, the largest of 200 samples; all of them take about ")
    assert "predicted to 100%" in str(made.step)


def test_a_step_of_lbfgs_is_told_with_its_tables() -> None:
    from recsmith.training.launch.dry_run import described

    made, plain = described(a_run("progressive_lbfgs")), described(a_run("base"))
    assert any(line.endswith("rowwise_adagrad for tables, progressive_lbfgs for the rest") for line in made.lines)
    assert made.step is not None
    assert plain.step is not None
    assert made.step.embeddings_s == 26 * plain.step.embeddings_s, "tables learn from 26 batches of 20, for 512 samples"
    passes = 2 + 4 / 3
    assert made.step.layers_s == pytest.approx(26 * (plain.step.layers_s * (1 + passes * 1.7) + passes * 1.3e-3))


def test_a_job_says_how_often_its_steps_passed_over_their_samples(tmp_path: Path) -> None:
    from recsmith.training import train

    result = train(replace(a_run("progressive_lbfgs"), output=str(tmp_path), steps=1, checkpoint=None))
    said = re.fullmatch(
        r"pipeline progressive_lbfgs: a step of 520 samples passed over them ([0-9.]+) times in the mean; "
        r"about 3 and at most 14 were predicted for the first(; lengths of steps were halved \d+ times?)?",
        result["brought"]["pipeline"],
    )  # fmt: skip
    assert said is not None
    assert 1 + 2 / 3 < float(said[1]) < 15
    assert re.fullmatch(
        "a step took .* in the mean; .* were predicted for that many samples and passes", result["brought"]["step"]
    )


def test_the_stages_of_a_job_are_those_that_were_told_and_each_has_a_line(tmp_path: Path) -> None:
    from recsmith.jobs.log_lines import logged
    from recsmith.training import train
    from recsmith.training.launch.dry_run import described

    run = replace(
        a_run("dance"), output=str(tmp_path), checkpoint=None,
        pipeline={"name": "dance", "samples": 40, "most": 6, "newton": 1, "inner": 1},
    )  # fmt: skip
    lines = described(run).lines
    assert any("1 epoch makes 4 steps, the largest of 120 samples; all of them take" in line for line in lines)
    assert (
        "metrics.every is 100, and the run has 4 steps: no scores are logged before its end; write metrics.every: 1"
        in lines
    )
    assert train(run)["step"] == 4
    stages = logged(tmp_path / "log.jsonl", "stage")
    assert [each["samples"] for each in stages] == [40, 80, 120, 120]
    assert all(each["loss"] < each["before"] or not each["newton"] for each in stages)
    assert all(each["loss"] > 0 and each["passes"] >= 1 and each["newton"] <= 1 for each in stages)


class Asked:
    """A step that is asked to end within its first one."""

    def __init__(self, job: Any) -> None:
        from recsmith._components import make
        from recsmith.training.seams import STEP

        self.inner: Any = make(STEP, "base", job)
        self.batches_ahead, self.pause, self.resume = 0, self.inner.pause, self.inner.resume

    def __call__(self, batches: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return replace(self.inner(batches), ended=True)


def test_a_job_ends_with_the_step_within_which_it_is_asked_to(tmp_path: Path) -> None:
    from recsmith.training import train
    from recsmith.training.run import Checkpointing

    pipeline = f"{__name__}:Asked"
    result = train(replace(a_run(pipeline), output=str(tmp_path), checkpoint=Checkpointing()))
    assert (result["step"], result["complete"]) == (1, False)
    assert [each.name for each in (tmp_path / "checkpoints").glob("step-*")] == ["step-00000001"]


def a_run(pipeline: str) -> Any:
    from recsmith.training import Run, RunData, RunModel

    features = [{"name": "item", "num_embeddings": 20}]
    data = {"format": "generator", "seed": 1, "dense": 1, "features": features, "num_samples": 200}
    return Run(
        data=RunData(train=data, batch_size=20), output="out", model=RunModel(embedding_dim=4), ranks=1,
        pipeline=pipeline,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (torch.nn.BatchNorm1d(4), r"layer '1' of the model, a BatchNorm1d, changes its running mean in each pass; use"),
        (torch.nn.InstanceNorm1d(4, track_running_stats=True), "a InstanceNorm1d, changes its running mean"),
        (torch.nn.Dropout(0.3), r"layer '1' of the model, a Dropout, drops 30% by chance in each pass; set it to 0"),
        (torch.nn.AlphaDropout(0.1), "an? AlphaDropout, drops 10% by chance"),
        (torch.nn.MultiheadAttention(4, 2, dropout=0.2), "a MultiheadAttention, drops 20% by chance"),
        (torch.nn.Dropout(0.0), None),
        (torch.nn.LayerNorm(4), None),
        (torch.nn.BatchNorm1d(4, track_running_stats=False), None),
    ],
    ids=str,
)
def test_layers_whose_loss_changes_by_itself_are_refused_by_name(layer: Any, words: str | None) -> None:
    from recsmith.training.systems.second_order.flat import check_layers

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), layer, torch.nn.Linear(4, 1))
    if words is not None:
        with pytest.raises(UsageError, match=words):
            check_layers(model, "dance")
        return
    check_layers(model, "dance")
    named = dict(model.named_parameters())

    def losses(parameters: Any, x: Any) -> Any:
        return torch.func.functional_call(model, dict(parameters), (x,)).square()[:, 0]

    layers = FlatLayers(named, losses)
    parts = [torch.randn(16, 3)]
    found = newton(DampedLoss(layers, parts, 0.1, layers.weights()), least=1e-6, settings=DanceSettings(newton=2))
    assert np.isfinite(found.loss)
