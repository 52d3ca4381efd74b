"""Described models: their steps on a machine that is known, what calibration mends, and what is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from support.machines import CALL_S, a_card, a_machine, a_model

import recsmith
from recsmith.cli.app import app
from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.plans import Plan, save_plan
from recsmith.prediction.graph import KernelShape, Kind
from recsmith.prediction.kernels import LEARNED, geometric_error
from recsmith.prediction.kernels.times import CollectiveTime, KernelMeasurements, KernelTime, load_times, save_times
from recsmith.prediction.machine import Curve, fit_curve, load_machine, save_machine
from recsmith.prediction.models import Model, load_model
from recsmith.prediction.models.build import model_graph
from recsmith.prediction.predictions import calibrate, predict_model

MLP = Model(kind="mlp", dense_features=16, layers=(32, 8))
MODELS = [MLP, Model(kind="transformer"), Model(kind="dlrm"), Model(kind="dlrm_dcn")]


def a_plan(ranks: int = 2, types: tuple[str, ...] = ("table_wise",)) -> Plan:
    feature = recsmith.Feature(name="f", pooling_factor=3)
    tables = tuple(
        recsmith.Table(name=f"t{i}", num_embeddings=1000, embedding_dim=16, features=(feature,)) for i in range(4)
    )
    workload = recsmith.Workload(batch_size=64, optimizer="sgd", tables=tables)
    wanted = recsmith.Space(types=types, kernels=("fused",))
    return recsmith.plan(workload, f"cpu:{ranks}", planner="size_greedy", space=wanted).plan


PLAN = a_plan()


def plan_for(model: Model) -> Plan | None:
    return PLAN if model.kind in ("dlrm", "dlrm_dcn") else None


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(MODELS), st.integers(1, 400), st.integers(1, 400))
def test_a_larger_batch_never_takes_less_time(model: Model, one: int, other: int):
    machine = a_machine()
    steps = predict_model(model, plan=plan_for(model), ranks=2, batches=sorted([one, other]), machine=machine)
    assert steps[0][1].step_s <= steps[1][1].step_s + 1e-12


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.kind)
def test_every_gradient_is_reduced_and_every_collective_awaited(model: Model):
    graph = model_graph(model, a_machine(), plan=plan_for(model), ranks=2, batch=64)
    assert len(graph.ranks) == 2
    awaited = [event.collective for event in graph.ranks[0] if event.kind == Kind.AWAIT]
    assert sorted(awaited) == list(range(len(graph.collectives)))
    reduced = sum(each.bytes for each in graph.collectives if each.name == "all_reduce")
    assert reduced == 4 * PARAMETERS[model.kind]
    assert [each.name for each in graph.collectives].count("all_to_all") == (5 if plan_for(model) else 0)


PARAMETERS = {  # elements of dense layers, by hand
    "mlp": 17 * 32 + 33 * 8 + 9,
    "transformer": 2 * (4 * 64 + 65 * 192 + 65 * 64 + 65 * 256 + 257 * 64) + 65,
    "dlrm": 14 * 64 + 65 * 16 + 27 * 64 + 65 * 32 + 33,
    "dlrm_dcn": 14 * 64 + 65 * 16 + 3 * (2 * 80 * 64 + 80) + 81 * 64 + 65 * 32 + 33,
}


def test_a_step_without_overheads_is_its_kernels_and_what_communication_shows():
    ((_, found),) = predict_model(MLP, ranks=1, machine=a_machine(), batches=[128])
    sums = sum(event.seconds for _, event in found.walk.graph.kernels())
    assert found.ranks[0].active_s == pytest.approx(sums)
    assert found.kernels_s == pytest.approx(sums)  # one rank's collectives take no time where they are not measured
    assert found.step_s > sums


def test_a_machine_of_a_gpu_launches_its_kernels():
    machine = a_machine()
    gpu = replace(machine, card=replace(machine.card, device="made, 132 SMs"))
    ((_, found),) = predict_model(MLP, ranks=2, machine=gpu, batches=[128])
    (kinds,) = ({event.kind for _, event in found.walk.graph.kernels()},)
    assert kinds == {Kind.LAUNCH}
    ((_, on_host),) = predict_model(MLP, ranks=2, machine=machine, batches=[128])
    assert [event.term for _, event in found.walk.graph.kernels()] == [
        event.term for _, event in on_host.walk.graph.kernels()
    ]
    assert found.terms.get("T4", 0.0) > 0
    heavy = replace(gpu, kernels=a_machine(1e3).kernels)
    ((_, bound),) = predict_model(MLP, ranks=1, machine=heavy, batches=[4096])
    assert bound.step_s == pytest.approx(bound.ranks[0].active_s, rel=0.01)  # the host is hidden


@settings(max_examples=20, deadline=None)
@given(st.floats(0.3, 3.0))
def test_calibration_finds_how_much_slower_a_machine_is(slower: float):
    graph = model_graph(Model(kind="transformer"), a_machine(slower), plan=None, ranks=2, batch=32)
    done = calibrate(a_machine(), graph, "made")
    assert done.factors["gemm"] == pytest.approx(slower)
    assert done.after <= done.before + 1e-9
    kernel = [KernelShape("gemm", (1.0, 64.0, 64.0, 64.0, 0.0, 1.0))]
    assert done.machine.kernels.seconds(kernel) == pytest.approx(a_machine(slower).kernels.seconds(kernel))


def test_kernels_without_a_model_are_priced_by_their_bytes_and_counted():
    kernels = a_machine().kernels
    strange = [KernelShape("other", (4e6, 4e6, 1.0, 0.0, 0.0))]
    assert kernels.seconds(strange) == pytest.approx(
        kernels.models["elementwise"].roofline(np.array([strange[0].shape]))
    )
    assert kernels.unknown(strange) == {"other": 1}
    assert kernels.seconds([KernelShape("copy", (0.0, 0.0, 1.0, 0.0, 0.0))])[0] == pytest.approx(CALL_S)


def test_a_curve_in_three_pieces_is_found_again():
    real = Curve(name="all_to_all", ranks=2, latency_s=2e-4, bytes_per_s=1e9, small=2e4, large=2e6, steepness=2.0,
                 middle=0.5)  # fmt: skip
    size = np.exp(np.linspace(np.log(64), np.log(3e7), 40))
    found = fit_curve("all_to_all", 2, size, real.seconds(size))
    assert found.error < 0.05
    assert geometric_error(found.seconds(size), real.seconds(size)) < 0.05
    assert found.latency_s == pytest.approx(2e-4, rel=0.05)
    with pytest.raises(UsageError, match="at least 8"):
        fit_curve("all_to_all", 2, size[:5], size[:5])


def test_a_machine_is_written_and_read_and_damage_is_named(tmp_path: Path):
    target = tmp_path / "here.safetensors"
    models = {kind: a_model(kind) for kind in LEARNED}
    save_machine(str(target), models, a_card())
    read = load_machine(target)
    assert read.card == a_card()
    kernel = [KernelShape("softmax", (4e4, 4e4, 1.0, 8.0, 0.0))]
    assert read.kernels.seconds(kernel) == pytest.approx(a_machine().kernels.seconds(kernel), rel=1e-5)
    models["gemm"] = a_model("softmax")
    save_machine(str(target), models, a_card())
    with pytest.raises(CorruptFile, match="shape"):
        load_machine(target)
    with pytest.raises(UsageError, match="no machine is called 'h100'"):
        load_machine("h100")


def test_kernel_times_are_written_and_read(tmp_path: Path):
    kernels = (KernelTime(kind="copy", shape=(1.0, 1.0, 1.0, 0.0, 0.0), seconds=1e-6),)
    made = KernelMeasurements(device="d", versions="v", seed=1, kernels=kernels,
                       collectives=(CollectiveTime(name="all_reduce", ranks=2, bytes=8.0, seconds=1e-4),))  # fmt: skip
    save_times(made, tmp_path / "times.json")
    assert load_times(tmp_path / "times.json") == made
    for kind, seconds in (("gemm", 1e-6), ("copy", 0.0), ("strange", 1e-6)):
        with pytest.raises(UsageError):
            KernelTime(kind=kind, shape=(1.0, 1.0, 1.0), seconds=seconds)
    for size, seconds in ((8.0, 1e-302), (0.0, 1e-4), (8.0, 1e9)):
        with pytest.raises(UsageError, match="all_reduce"):
            CollectiveTime(name="all_reduce", ranks=2, bytes=size, seconds=seconds)


def _model_file(folder: Path, text: str) -> str:
    (folder / "model.yaml").write_text(f"schema: recsmith/model/1\n{text}\n")
    return str(folder / "model.yaml")


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no plan": (lambda _: predict_model(MODELS[2], machine=a_machine()), "has embedding tables; name their --plan"),
    "a plan too many": (lambda _: predict_model(MLP, plan=PLAN, machine=a_machine()), "leave out --plan"),
    "ranks": (lambda _: predict_model(MLP, ranks=8, machine=a_machine()), "no curve of all_reduce on 8 ranks"),
    "no ranks": (lambda _: predict_model(MLP, ranks=0, machine=a_machine()), "at least 1"),
    "cost model": (lambda _: predict_model(MLP, cost_model="analytic", machine=a_machine()), "add --plan"),
    "sizes": (lambda folder: load_model(_model_file(folder, "kind: mlp\nlayers: [0]")), "sizes are 1 to"),
    "heads": (lambda folder: load_model(_model_file(folder, "kind: transformer\nwidth: 10")), "of its 4 heads"),
    "kind": (lambda folder: load_model(_model_file(folder, "kind: bert")), "kind"),
    "field": (lambda folder: load_model(_model_file(folder, "kind: mlp\nlayer: [1]")), "layer"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_gets_one_sentence(tmp_path: Path, case: str):
    call, said = REFUSED[case]
    with pytest.raises(RecSmithError, match=said):
        call(tmp_path)


def test_the_command_predicts_a_model_and_sweeps(tmp_path: Path):
    target = tmp_path / "here.safetensors"
    save_machine(str(target), {kind: a_model(kind) for kind in LEARNED}, a_card())
    save_plan(PLAN, str(tmp_path / "plan.json"))
    model = _model_file(tmp_path, "kind: dlrm")
    words = ["predict", model, "--plan", str(tmp_path / "plan.json"), "--machine", str(target)]
    one = CliRunner().invoke(app, [*words, "--what-if", "link=2x"])
    assert one.exit_code == 0, one.output
    assert "all to all" in one.output
    many = CliRunner().invoke(app, [*words, "--batch", "64,128"])
    assert many.exit_code == 0, many.output
    assert "samples/s" in many.output
    wrong = CliRunner().invoke(app, [*words, "--batch", "x"])
    assert isinstance(wrong.exception, UsageError)
