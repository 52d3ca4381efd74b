"""Measuring with FBGEMM: what is timed, between probes; failures are answers; CUDA's loop, rehearsed on the CPU."""

import platform
import resource
import time
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.measured import group

from recsmith.errors import RecSmithError, UsageError
from recsmith.hardware import SCALES, load_hardware
from recsmith.hardware.loads import scale_for

pytestmark = pytest.mark.usefixtures("fbgemm")


@pytest.fixture(scope="module")
def cpu() -> Any:
    pytest.importorskip("fbgemm_gpu")
    return load_hardware("cpu", "check")


def clocked(monkeypatch: pytest.MonkeyPatch, hardware: Any, seconds: Callable[[], float]) -> None:
    """Let calls run, and say that they took so long."""
    monkeypatch.setattr(hardware, "_timed", lambda call: (call(), seconds(), 2.0))


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "rowwise_adagrad"])
@pytest.mark.parametrize("data_type", ["fp32", "fp16"])
def test_the_cpu_measures_what_it_trains(cpu: Any, optimizer: str, data_type: str):
    case = group((1000, 64, 5.0, 1.0), (10, 8, 0.5, 0.0), (5, 4, 0.0, 0.0), optimizer=optimizer, data_type=data_type)
    found = cpu.measure(case)
    assert found.status == "ok"
    assert 0 < found.forward_s <= found.forward_median_s
    assert 0 < found.backward_s <= found.backward_median_s
    assert found.repetitions >= 4
    assert found.lookups == case.lookups == (320, 32, 0)
    assert found.unique_rows[2] == 0
    assert found.probe_s > 0


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc's malloc")
def test_large_outputs_lie_in_memory_that_is_kept():
    case = replace(group((100, 1024, 1.0, 0.0)), seed=0)
    case = replace(case, workload=replace(case.workload, batch_size=10_240))  # 40 MiB of outputs
    hardware = load_hardware("cpu", scale_for([(case,)], "cpu"))
    hardware.measure(case)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    found = hardware.measure(case)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert found.status == "ok"
    outputs = 40 * 2**20 // resource.getpagesize()
    assert faults < found.repetitions * outputs  # memory that is not kept faults in at least once a repetition


def test_a_case_without_any_id_is_measured(cpu: Any):
    assert cpu.measure(group((5, 4, 0.0, 0.0), batch_size=1)).forward_s > 0


def test_weights_stay_what_they_were(cpu: Any):
    cpu.measure(group((1000, 64, 5.0, 1.0), optimizer="adagrad"))
    assert cpu._memory.weights.unique().tolist() == [0x3C00]


def test_work_shows_in_the_time(cpu: Any, monkeypatch: pytest.MonkeyPatch):
    """The core's seconds are stood for by ids that the tables have read: each clock holds what its kernels do."""
    fused, devices = (import_module(f"recsmith.hardware.{name}") for name in ("fused_hardware", "devices"))
    read = [0]

    def count(ids: int) -> None:
        read[0] += ids

    class Counted(fused.FusedTables):
        def forward(self, ids: Any, offsets: Any) -> Any:
            count(len(ids))
            output = super().forward(ids, offsets)
            output.register_hook(lambda _: count(len(ids)))
            return output

    monkeypatch.setattr(fused, "FusedTables", Counted)
    monkeypatch.setattr(devices, "time", SimpleNamespace(process_time=lambda: read[0], perf_counter=time.perf_counter))
    for pooling in (1.0, 60.0):
        found = cpu.measure(group((1000, 64, pooling, 1.0), batch_size=128))
        assert found.forward_s == found.backward_s == found.lookups[0] == 128 * pooling


def test_the_fastest_and_the_median_repetition_are_kept(cpu: Any, monkeypatch: pytest.MonkeyPatch):
    """Forward and backward take turns: 1, 2, 3 ... seconds; the first repetition does not count."""
    seconds = iter(range(1, 1000))
    monkeypatch.setattr(cpu, "_probed_s", 1.0)
    monkeypatch.setattr(cpu, "_probe", lambda: 1.02)
    monkeypatch.setattr(cpu, "least_s", 0.0)
    clocked(monkeypatch, cpu, lambda: float(next(seconds)))
    found = cpu.measure(group((10, 4, 1.0, 0.0)))
    assert (found.forward_s, found.backward_s, found.repetitions) == (3, 4, 4)
    assert (found.forward_median_s, found.backward_median_s) == (6, 7)
    assert found.spread == pytest.approx(13 / 7 - 1)
    assert (found.forward_wall_s, found.probe_s) == (2.0, 1.01)
    assert (found.status, round(found.probe_moved, 9)) == ("ok", 0.02)


def test_groups_of_a_step_run_forward_in_order_and_backward_in_reverse(cpu: Any, monkeypatch: pytest.MonkeyPatch):
    room = import_module("recsmith.hardware.fused_hardware")
    said: list[str] = []
    ours = room.FusedTables.forward

    def forward(self: Any, *words: Any) -> Any:
        said.append(f"forward {self.embedding_specs[0][1]}")
        output = ours(self, *words)
        output.register_hook(lambda gradient: said.append(f"backward {gradient.shape[1]}"))
        return output

    first, second = group((100, 8, 2.0, 0.0)), group((50, 16, 1.0, 0.0), data_type="fp16")
    monkeypatch.setattr(cpu, "_probed_s", 1.0)
    monkeypatch.setattr(cpu, "_probe", lambda: 1.0)
    monkeypatch.setattr(room.FusedTables, "forward", forward)
    monkeypatch.setattr(cpu, "least_s", 0.0)
    found = cpu.measure_groups((first, second), least=2)
    assert said == ["forward 8", "forward 16", "backward 16", "backward 8"] * 3
    assert (found.status, found.repetitions) == ("ok", 2)
    assert found.lookups == (*first.lookups, *second.lookups)
    assert found.unique_rows[0] == cpu.measure(first).unique_rows[0]


def test_groups_of_a_step_share_no_memory(cpu: Any):
    cases = (group((3, 4, 1.0, 0.0)), group((100, 8, 2.0, 0.0), data_type="fp16"), group((7, 12, 1.0, 0.0)))
    room = import_module("recsmith.hardware.fused_hardware")
    groups = cpu._groups(cases, [room.draw_lookups(case, cpu._pool) for case in cases])
    weights = [each.tables.weights_host for each in groups]
    assert [weight.numel() for weight in weights] == [12, 800, 84]
    starts = [weight.data_ptr() - weights[0].data_ptr() for weight in weights]
    assert starts == [0, 256, 256 + 13 * 256]  # cache lines of 64 elements; fp16 takes half of its part
    assert len({each.gradient.data_ptr() for each in groups}) == 3


@pytest.mark.parametrize("apart", [True, False])
def test_kernels_write_into_their_memory_alone(apart: bool, monkeypatch: pytest.MonkeyPatch):
    """Of the probe, too, which fills the memory of a small scale."""
    import torch

    room: Any = import_module("recsmith.hardware.fused_tables")
    made: list[tuple[torch.Tensor, int]] = []

    def guarded(size: int, value: float, dtype: torch.dtype) -> torch.Tensor:
        made.append((torch.full((size + 8192,), 7, dtype=dtype), size))
        made[-1][0][4096 : 4096 + size] = value
        return made[-1][0][4096 : 4096 + size]

    def of(scale: Any, device: torch.device) -> Any:
        return room.Memory(
            guarded(2 * scale.elements, room.WEIGHT_BITS, torch.int16),
            guarded(scale.elements if scale.apart else 0, room.STATE, torch.float32),
            guarded(scale.outputs, room.GRADIENT, torch.float32),
        )

    monkeypatch.setattr(room.Memory, "of", of)
    hardware = load_hardware("cpu", replace(SCALES["check"], apart=apart))
    for optimizer in ("sgd", "adagrad", "rowwise_adagrad"):
        assert hardware.measure(group((100, 8, 2.0, 0.0), (10, 4, 2.0, 0.0), optimizer=optimizer)).status == "ok"
    for memory, size in made:
        assert torch.equal(memory[:4096], torch.full_like(memory[:4096], 7))
        assert torch.equal(memory[4096 + size :], torch.full_like(memory[4096 + size :], 7))


def test_tables_that_the_memory_does_not_hold_are_refused(cpu: Any):
    case = group((100, 8, 2.0, 0.0), optimizer="adagrad")
    room: Any = import_module("recsmith.hardware.fused_tables")
    for short in (
        cpu._memory._replace(weights=cpu._memory.weights[:1000]),
        cpu._memory._replace(state=cpu._memory.state[:100]),
    ):
        with pytest.raises(RuntimeError, match="has 800 elements, and the memory of the scale"):
            room.FusedTables(case, short)


def test_groups_that_outgrow_the_scale_together_are_refused(cpu: Any):
    half = group((2**11, 64, 1.0, 0.0))
    assert cpu.measure_groups((half, half)).status == "ok"
    with pytest.raises(UsageError, match="the 3 cases of a device have"):
        cpu.measure_groups((half, half, half))


@pytest.mark.parametrize("data_type", ["fp32", "fp16"])
def test_states_behind_weights_share_nothing_with_them_and_every_case_begins_afresh(data_type: str):
    pytest.importorskip("fbgemm_gpu")
    import torch

    hardware: Any = load_hardware("cpu", replace(SCALES["check"], apart=False))
    case = group((100, 8, 2.0, 0.0), (10, 4, 2.0, 0.0), optimizer="adagrad", data_type=data_type)
    other = group((50, 16, 2.0, 0.0), optimizer="rowwise_adagrad", data_type=data_type)
    assert hardware.measure_groups((case, other)).status == "ok"
    groups = hardware._groups((case, other), [hardware._lookups(each) for each in (case, other)])
    spans = sorted(
        (values.data_ptr(), values.data_ptr() + values.numel() * values.element_size())
        for each in groups
        for values in (each.tables.weights_host, each.tables.momentum1_host)
    )
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    weights, state = groups[0].tables.weights_host, groups[0].tables.momentum1_host
    assert (weights.numel(), state.numel()) == (840, 840)
    assert torch.equal(state, torch.full_like(state, 1e-3))
    assert set(weights.tolist()) == {1.0 if data_type == "fp16" else weights[0].item()}
    assert weights[0].item() == pytest.approx(1.0 if data_type == "fp16" else 0.0078, rel=0.01)


def test_the_second_state_of_an_optimizer_lies_behind_the_first(cpu: Any):
    from types import SimpleNamespace

    import torch

    case = group((10, 8, 1.0, 0.0), optimizer="adagrad")
    tables: Any = cpu._groups((case,), [cpu._lookups(case)])[0].tables
    split = SimpleNamespace(host_size=80, dev_size=0, placements=[0], offsets=[0])
    tables._apply_split(split, "momentum2", torch.float32)
    assert tables.momentum2_host.data_ptr() == tables.momentum1_host.data_ptr() + 80 * 4
    assert tables.momentum2_host.numel() == 80


def test_copies_go_to_another_place(cpu: Any):
    apart = copy(cpu)
    weights = cpu._memory.weights.clone()
    apart._memory = cpu._memory._replace(weights=weights)
    weights[:3000] = 7
    assert apart.copy_seconds(2**12) > 0
    assert (weights == 7).sum() == 3000 + 2**11
    assert (weights[len(weights) // 2 :][: 2**11] == 7).all()
    for size in (0, 1, 2**20):
        with pytest.raises(UsageError, match="cannot be copied: scale check has room for 512 KiB"):
            cpu.copy_seconds(size)


def test_means_are_measured_as_means(cpu: Any):
    case = group((100, 8, 2.0, 0.0))
    tables = tuple(replace(table, pooling="mean") for table in case.tables)
    mean = replace(case, workload=replace(case.workload, tables=tables))
    room = import_module("recsmith.hardware.fused_hardware")
    both = [cpu._groups((each,), [room.draw_lookups(each, cpu._pool)])[0] for each in (case, mean)]
    total, middle = (each.tables(each.lookups.ids, each.lookups.offsets) for each in both)
    assert (total == 2 * middle).all()


@pytest.mark.parametrize("after", [0.5, 1.0, 2.0])
def test_a_probe_that_moves_is_kept_and_discards_nothing(cpu: Any, monkeypatch: pytest.MonkeyPatch, after: float):
    monkeypatch.setattr(cpu, "_probed_s", 1.0)
    monkeypatch.setattr(cpu, "_probe", lambda: after)
    found = cpu.measure(group((10, 4, 1.0, 0.0)))
    assert (found.status, found.probe_moved, found.probe_s) == ("ok", abs(after - 1), (1 + after) / 2)
    assert cpu._probed_s == after  # it opens the next bracket


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried\nmore"), "out_of_memory"),
        (MemoryError(), "out_of_memory"),
        (RuntimeError("odd"), "failed"),
    ],
)
def test_what_fails_is_an_answer(cpu: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, status: str):
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(cpu, "_probed_s", 1.0)
    monkeypatch.setattr(cpu, "_drawn", {})
    with monkeypatch.context() as patch:
        patch.setattr("recsmith.hardware.fused_hardware.draw_lookups", fail)
        found = cpu.measure(group((10, 4, 1.0, 0.0)))
    assert (found.status, found.message) == (status, str(error).split("\n")[0])
    assert found.forward_s is None
    assert cpu.measure(group((10, 4, 1.0, 0.0))).forward_s > 0


def test_ids_of_the_last_cases_are_kept_for_other_visits(cpu: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cpu, "_drawn", {})
    monkeypatch.setattr("recsmith.hardware.fused_hardware.KEPT_IDS", 250)
    monkeypatch.setattr("recsmith.hardware.fused_hardware.KEPT_ITERATIONS", 0)
    first, second, third = (group((rows, 4, 2.0, 0.0)) for rows in (10, 20, 30))  # 128 ids each
    kept = cpu._lookups(first)
    cpu._lookups(second)
    assert cpu._lookups(first) is kept
    cpu._lookups(third)  # too many are kept by now
    assert list(cpu._drawn) == [third]
    assert (cpu._lookups(first).ids == kept.ids).all()


def test_a_real_lack_of_memory_is_an_answer(cpu: Any):
    """Outputs of 1 GiB in a process that may take 256 MiB more."""
    scarce = copy(cpu)
    gradient = cpu._memory.gradient[:1].expand(2**28)
    memory = cpu._memory._replace(gradient=gradient)
    scarce.scale, scarce._memory = replace(SCALES["check"], outputs=2**28), memory
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    cpu.measure(group((4, 1024, 0.0, 0.0)))
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**28, hard))
    try:
        found = scarce.measure(group((4, 1024, 0.0, 0.0), batch_size=2**18))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert found.status == "out_of_memory"


def test_a_scale_that_does_not_fit_is_refused(cpu: Any):
    huge = replace(SCALES["check"], elements=2**55)
    with pytest.raises(UsageError, match="cpu has no room for the 256 PiB that scale check takes"):
        type(cpu)(huge, "versions")


def test_a_device_that_no_longer_answers_ends_the_run(cpu: Any, monkeypatch: pytest.MonkeyPatch):
    def fail(_: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access")

    monkeypatch.setattr(cpu, "_timed", fail)
    monkeypatch.setattr(cpu, "_probed_s", None)
    with pytest.raises(RecSmithError, match="cpu no longer answers: CUDA error"):
        cpu.measure(group((10, 4, 1.0, 0.0)))


@pytest.mark.parametrize(
    ("optimizers", "data_types", "odd"), [(("adam",), ("fp32",), "adam"), (("sgd",), ("bf16",), "bf16")]
)
def test_what_fbgemm_does_not_train_is_refused(cpu: Any, optimizers: Any, data_types: Any, odd: str):
    rule = f"hardware cpu trains fp32 and fp16 tables with sgd, adagrad, rowwise_adagrad; '{odd}' is not among them"
    with pytest.raises(UsageError, match=rule):
        cpu.refuse(optimizers, data_types)
    with pytest.raises(UsageError, match=rule):
        cpu.measure(group((10, 4, 1.0, 0.0), optimizer=optimizers[0], data_type=data_types[0]))


# --- CUDA, rehearsed ----------------------------------------------------------------------------------------------


class Runtime:
    """torch.cuda as far as the loop uses it; events note what happens, a millisecond apart."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.late = False  # whether the device began before the host had queued a call
        runtime = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                runtime.said.append("record")

            def synchronize(self) -> None:
                runtime.said.append("synchronize")

            def query(self) -> bool:
                return runtime.late

            def elapsed_time(self, end: "Event") -> float:
                return 1.0

        self.Event = Event

    def is_available(self) -> bool:
        return True

    def get_device_properties(self, index: int) -> Any:
        return type("Properties", (), {"name": "GPU", "multi_processor_count": 4, "L2_cache_size": 1000})


def test_the_cuda_loop_flushes_and_reads_events(monkeypatch: pytest.MonkeyPatch):
    room = import_module("recsmith.hardware.devices")
    monkeypatch.setattr(room, "FLUSHED_BYTES", 10)
    runtime = Runtime()
    cuda = room.Cuda(SCALES["check"], "versions", runtime=runtime, place="cpu")
    assert cuda._flushed.numel() == 1000
    assert cuda.device == "GPU, 4 SMs, cache 1000"
    cuda._flushed.fill_(1)
    found = cuda.measure(group((1000, 64, 5.0, 1.0), optimizer="rowwise_adagrad"))
    assert (found.status, found.forward_s, found.backward_s, found.forward_wall_s) == ("ok", 1e-3, 1e-3, 1e-3)
    assert cuda._flushed.sum() == 0
    assert runtime.said[-6:] == ["record", "record", "synchronize"] * 2


def test_the_device_is_kept_busy_for_twice_as_long_as_the_host_queues(monkeypatch: pytest.MonkeyPatch):
    """A flush takes a millisecond, as every call does by these events."""
    room = import_module("recsmith.hardware.devices")
    monkeypatch.setattr(room, "FLUSHED_BYTES", 10)
    runtime = Runtime()
    cuda = room.Cuda(SCALES["check"], "versions", runtime=runtime, place="cpu")
    assert cuda._flushes == 1
    cuda._queued(0.0031, late=False)
    assert cuda._flushes == 7
    for _ in range(20):
        cuda._queued(0.0, late=False)
    assert cuda._flushes == 1
    cuda._queued(1.0, late=False)  # a first call, which loads kernels
    assert cuda._flushes == room.MOST_FLUSHES
    cuda._queueing_s, runtime.late = 0.0, True
    cuda._timed(lambda: None)
    assert cuda._flushes == room.MOST_FLUSHES


def test_cuda_without_a_device_is_refused(monkeypatch: pytest.MonkeyPatch):
    room = import_module("recsmith.hardware.devices")
    runtime = Runtime()
    monkeypatch.setattr(runtime, "is_available", lambda: False)
    with pytest.raises(UsageError, match="no CUDA device is visible to PyTorch"):
        room.Cuda(SCALES["check"], "versions", runtime=runtime)
