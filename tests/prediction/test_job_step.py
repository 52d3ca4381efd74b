"""One step of a job and one speed of a core: parts add up, and every price follows the machine that ships."""

from dataclasses import replace

import pytest
from support.plans import two_tables
from support.systems import needs_systems

from recsmith.clusters import Links, load_cluster
from recsmith.plans import Plan
from recsmith.prediction import speeds
from recsmith.prediction.dense_shapes import numbers_of
from recsmith.prediction.job_step import crossing_s, gradients_s, job_step, lookups_s
from recsmith.prediction.machine import load_machine
from recsmith.prediction.reading import Reading
from recsmith.units import format_time

SHAPES = [(64, 13), (64,), (16, 64), (16,), (1, 16), (1,)]


def on(device: str) -> Plan:
    return replace(two_tables(), cluster=load_cluster(device))


def test_parts_add_up_and_follow_the_work() -> None:
    step, wide = job_step(on("cpu:2"), SHAPES), job_step(on("cpu:2"), [*SHAPES, (512, 512)])
    assert step is not None
    assert wide is not None
    parts = (step.trainer_s, step.reading_s, step.embeddings_s, step.layers_s, step.gradients_s, step.optimizer_s)
    assert step.step_s == pytest.approx(sum(parts))
    assert all(part > 0 for part in parts)
    assert step.embeddings_s == on("cpu:2").cost.total_s
    assert wide.layers_s > step.layers_s
    assert wide.gradients_s > step.gradients_s
    assert wide.reading_s == step.reading_s
    assert wide.trainer_s > step.trainer_s  # ranks wait for the slowest longer


def test_on_one_rank_nobody_waits_for_layers() -> None:
    step, wide = job_step(on("cpu:1"), SHAPES), job_step(on("cpu:1"), [*SHAPES, (512, 512)])
    assert step is not None
    assert wide is not None
    assert wide.trainer_s == step.trainer_s


def test_reading_counts_for_all_ranks_unless_each_reads_its_own() -> None:
    slow, alone = Reading(sample_s=1e-3), Reading(sample_s=1e-3, alone=True)
    every, own = (job_step(on("cpu:2"), SHAPES, reading=each) for each in (slow, alone))
    assert every is not None
    assert own is not None
    assert every.reading_s - own.reading_s == pytest.approx(1e-3 * on("cpu:2").workload.batch_size)
    assert numbers_of(SHAPES) == 64 * 13 + 64 + 16 * 64 + 16 + 16 + 1


@pytest.mark.parametrize("flags", [{"avx512f"}, {"avx512f", "avx512_bf16"}, {"amx_bf16"}])
def test_products_in_bf16_follow_what_the_processor_has(flags: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    speeds._bf16_factor.cache_clear()
    monkeypatch.setattr(speeds, "processor_flags", lambda: frozenset(flags))
    wide, narrow = speeds.bf16_layers_s(0.1, SHAPES), speeds.bf16_layers_s(1e-4, SHAPES)
    layers = sum(len(shape) > 1 for shape in SHAPES)
    gain, loss = (speeds.bf16_line(seconds, layers) for seconds in (wide, narrow))
    speeds._bf16_factor.cache_clear()
    pays = "longer" if flags == {"avx512f"} else "less"
    assert gain.startswith(f"dense layers take {format_time(abs(wide - 0.1))} {pays}, ")
    assert ("; this processor lacks" in gain) is (flags == {"avx512f"})
    assert loss.startswith(f"dense layers take {format_time(narrow - 1e-4)} longer, {format_time(narrow)} of a step in")
    assert " in place of 100 µs in fp32: leave it out; " in loss
    assert (wide < 0.1) is (flags != {"avx512f"})
    assert narrow > 1e-4  # casts take longer than what they save


def test_lookups_are_a_part_of_what_tables_take() -> None:
    plan = on("cpu:2")
    assert 0 < lookups_s(plan) < plan.cost.step_s


def test_steps_of_gpus_are_not_predicted() -> None:
    assert job_step(on("h100:2"), SHAPES) is None


def test_gradients_take_the_links_and_not_less_than_was_measured() -> None:
    cluster = load_cluster("cpu:2")
    measured = load_machine("cpu").collective_s("all_reduce", 4e6, 2)
    assert gradients_s(1e6, cluster) == pytest.approx(max(measured, 4e6 / cluster.ring_bandwidth))
    links = replace(cluster.links, intra_host_bandwidth=1e6)
    assert isinstance(links, Links)
    assert gradients_s(1e6, replace(cluster, links=links)) == pytest.approx(4.0)
    assert gradients_s(1e6, load_cluster("cpu:1")) == 0
    assert crossing_s(1.0, cluster) == pytest.approx(load_machine("cpu").latency_s("all_reduce", 2))


@needs_systems("arrays", "shampoo")
def test_every_price_of_products_follows_the_machine_that_ships(monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrow layers, Shampoo, towers, arrays and search ask one place: a machine half as fast halves them all."""
    from recsmith.training.systems.arrays.scheduling.profiling import cpu_rates
    from recsmith.training.systems.shampoo.blocks import ShampooSettings
    from recsmith.training.systems.shampoo.cost import shampoo_cost

    def prices() -> list[float]:
        speeds.flops_per_s.cache_clear()
        speeds._layers_s.cache_clear()
        cost = shampoo_cost(ShampooSettings(), [(2048, 2048)], load_cluster("cpu:1"), 1.0)
        assert cost.seconds is not None
        return [speeds.layers_s([(1024, 1024)] * 3, 4096), 1 / speeds.flops_per_s("cpu"), cost.seconds,
                1 / cpu_rates().flops]  # fmt: skip

    before, machine = prices(), load_machine("cpu")
    slow = dict.fromkeys(machine.kernels.models, 2.0)
    monkeypatch.setattr(speeds, "core", lambda: replace(machine, kernels=replace(machine.kernels, factors=slow)))
    assert [late / soon for late, soon in zip(prices(), before, strict=True)] == pytest.approx([2.0] * 4, rel=0.05)
    monkeypatch.undo()
    prices()
