"""Memory of an array's layers: simulated and measured, and the scheduler's choices on a simulated H100.

    python benchmarks/array_memory.py peaks          # simulated peaks beside the allocator's, and CPU time, of 6 graphs
    python benchmarks/array_memory.py paper          # copies, recomputing, both and neither, on a simulated H100

Tables of docs/array.md. Times of `paper` are simulated; nothing of it runs on a GPU.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from recsmith.data import DataFeature, DataSchema
from recsmith.errors import NoPlanFound
from recsmith.prediction.activations.scheduler import BOTH, ArraySchedule, Part, partitions, scheduled
from recsmith.training import Run, RunData, RunModel
from recsmith.training.systems.arrays.layer_memory import LayerMemory
from recsmith.training.systems.arrays.model import Layers, member_of
from recsmith.training.systems.arrays.scheduling.profiling import H100, traced

FEATURES, DENSE, CPU_DEVICE = 26, 13, torch.device("cpu")
SCHEMA = DataSchema(
    features=tuple(DataFeature(name=f"f{number}", num_embeddings=100) for number in range(FEATURES)),
    dense=tuple(f"d{number}" for number in range(DENSE)), labels=("y",),
)  # fmt: skip
GRAPHS: dict[str, tuple[RunModel, int, int]] = {  # model, members, samples
    "small": (RunModel(), 4, 256),
    "small, 64 columns": (RunModel(embedding_dim=64), 2, 512),
    "mlperf": (RunModel(bottom=(512, 256), top=(512, 256)), 4, 512),
    "dlrm_dcn": (RunModel(name="dlrm_dcn", cross_rank=16), 4, 256),
    "deepfm": (RunModel(name="deepfm"), 4, 512),
    "deep": (RunModel(bottom=(128,) * 4, top=(256,) * 10), 3, 1024),
}
MLPERF: dict[str, Any] = {"embedding_dim": 128, "bottom": (512, 256), "top": (1024, 1024, 512, 256)}
LARGE: dict[str, tuple[RunModel, int]] = {  # model, samples
    "MLPerf DLRM": (RunModel(**MLPERF), 65_536),
    "MLPerf DLRM-DCN": (RunModel(name="dlrm_dcn", cross_rank=512, **MLPERF), 65_536),
    "wide layers": (RunModel(embedding_dim=64, bottom=(2048,) * 4, top=(4096,) * 8), 16_384),
}  # fmt: skip
SHARES, EIGHT, ROUNDS = (0.5, 0.25, 0.125), 8, 9
METHODS: dict[str, tuple[Sequence[Any], bool]] = {  # what may be done with activations; whether sub-arrays are allowed
    "sub-arrays alone": ((), True),
    "copies": (("swap",), True),
    "recomputing": (("recompute",), True),
    "both": (BOTH, True),
    "both, all at once": (BOTH, False),
}


def members(model: RunModel, count: int) -> Any:
    """So many members of a model."""
    source: Any = SimpleNamespace(schema=SCHEMA)
    run = Run(data=RunData(train="x"), output="out", model=model)
    return [member_of(f"m{number}", number, run, source) for number in range(count)]


class Step:
    """A step of layers on random data, without a limit and within one."""

    def __init__(self, model: RunModel, count: int, samples: int) -> None:
        torch.manual_seed(0)
        self.members = members(model, count)
        self.pooled = torch.randn(samples, count, FEATURES * model.embedding_dim, requires_grad=True)
        self.batch: Any = SimpleNamespace(
            dense_features=torch.randn(samples, DENSE), sparse_features=None,
            labels=torch.randint(2, (samples, 1)).float(), place=SimpleNamespace(samples=range(samples)),
        )  # fmt: skip
        self.layers = Layers(self.members)
        self.shapes = (samples, self.pooled.shape[2]), (samples, DENSE), 1

    def limited(self, limit: float) -> ArraySchedule:
        """Keep the layers within a limit from now on; their schedule."""
        models, given = [each.task.model for each in self.members], [each.given for each in self.members]
        self.layers.memory = LayerMemory(limit, self.layers.groups, models, given)  # type: ignore[arg-type]
        return self.layers.memory.plan(self.shapes, CPU_DEVICE)

    def trained(self) -> None:
        """A forward and a backward pass, of the plain step or of the schedule."""
        self._backward(self.layers(self.pooled, self.batch)[0])

    def checkpointed(self) -> None:
        """The same, where torch.utils.checkpoint computes each member's layers again."""
        logits: list[Any] = []
        for number, member in enumerate(self.members):

            def one(vectors: Any, given: Any = member.given, model: Any = member.task.model) -> Any:
                given.pooled = vectors
                return model(self.batch.dense_features, None)

            logits.append(checkpoint(one, self.pooled[:, number], use_reentrant=False))
        outputs = torch.stack(logits).reshape(len(logits), *self.batch.labels.shape)
        self._backward(self.layers.loss(self.layers.losses(outputs, self.batch)))

    def _backward(self, loss: torch.Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]
        self.pooled.grad = None
        for parameter in self.layers.parameters():
            parameter.grad = None


def peak_of(run: Callable[[], None]) -> int:
    """The most bytes that PyTorch's allocator has handed out at once, as its profiler saw them."""
    run()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    live, peak = 0, 0
    for event in sorted(seen.profiler.kineto_results.events(), key=lambda each: each.start_ns()):  # type: ignore[union-attr]
        if event.name() == "[memory]":
            live += event.nbytes()  # type: ignore[attr-defined]
            peak = max(peak, live)
    return peak


def cpu_of(run: Callable[[], None]) -> float:
    """CPU seconds."""
    began = time.process_time()
    run()
    return time.process_time() - began


def show_peaks(quick: bool) -> None:
    """Simulated and measured peaks of six graphs: all kept, and within two limits."""
    torch.set_num_threads(1)
    print("| graph | limit | members at once | computed again | simulated | measured | apart | CPU time |")
    print("|---|---|---|---|---|---|---|---|")
    for name, (model, count, samples) in list(GRAPHS.items())[: 1 if quick else None]:
        step = Step(model, count, samples)
        plain_peak = peak_of(step.trained)
        low = _least(step)
        limits = [low * 1.02, (low + plain_peak) / 2]
        rows = [step.limited(each) for each in limits]
        for limit, schedule in zip(limits, rows, strict=True):
            step.limited(limit)
            memory = step.layers.memory
            measured = peak_of(step.trained)
            ratios: list[float] = []
            for _ in range(2 if quick else ROUNDS):
                step.layers.memory = None
                plain = cpu_of(step.trained)
                step.layers.memory = memory
                ratios.append(cpu_of(step.trained) / plain)
            ratio = statistics.median(ratios)
            print(_row(f"{name}, {count} x {samples}", limit, schedule, measured, ratio), flush=True)
        step.layers.memory = None
        rounds = range(2 if quick else ROUNDS)
        again = statistics.median(cpu_of(step.checkpointed) / cpu_of(step.trained) for _ in rounds)
        checkpointed = _mib(peak_of(step.checkpointed))
        print(f"| {name}, plain step | | {count} | | | {_mib(plain_peak)} | | 1 |")
        print(f"| {name}, torch.utils.checkpoint of each member | | | all | | {checkpointed} | | {again:.2f} |")


def _least(step: Step) -> int:
    """The least memory for which the scheduler finds a schedule, by halving."""
    low, high = 0, step.limited(float("inf")).peak_bytes
    while high - low > high // 200:
        middle = (low + high) // 2
        try:
            high = step.limited(middle).peak_bytes
        except NoPlanFound:
            low = middle
    return high


def _row(name: str, limit: float, schedule: ArraySchedule, measured: int, time_ratio: float) -> str:
    sizes = ", ".join(str(size) for _, size in schedule.parts)
    apart = schedule.peak_bytes / measured - 1
    again = f"{sum(map(len, schedule.ways.values()))}, {schedule.again_share:.0%} more"
    return (f"| {name} | {_mib(limit)} | {sizes} | {again} | {_mib(schedule.peak_bytes)} | {_mib(measured)} "
            f"| {apart:+.1%} | {time_ratio:.2f} |")  # fmt: skip


def _mib(size: float) -> str:
    return f"{size / 2**20:.2f} MiB"


def show_paper(quick: bool) -> None:
    """Seconds of a step of eight members on a simulated H100, by what is done where memory is short."""
    print("| model | limit | way | members at once | step | beside sub-arrays alone | waits | computed again |")
    print("|---|---|---|---|---|---|---|---|")
    count, longest = 2 if quick else EIGHT, 0.0
    for name, (model, samples) in list(LARGE.items())[: 1 if quick else None]:
        graph_of = _graphs(members(model, count), 64 if quick else samples, model.embedding_dim)
        whole = scheduled(graph_of, [[(0, count)]], float("inf"), link=None).peak_bytes
        for limit in (whole * share for share in SHARES):
            first = 0.0
            for way, (ways, parts) in METHODS.items():
                candidates: Iterable[Sequence[Part]] = partitions([count]) if parts else [[(0, count)]]
                began = time.process_time()
                try:
                    found = scheduled(graph_of, candidates, limit, link=H100.link, ways=ways)
                except NoPlanFound:
                    found = None
                longest = max(longest, time.process_time() - began)
                first = found.seconds if found and way == "sub-arrays alone" else first
                print(f"| {name} | {limit / 2**30:.1f} GiB | {way} | {_told(found, first)} |", flush=True)
    print(f"\nThe longest schedule took {longest:.0f} CPU seconds.")


def _told(found: ArraySchedule | None, first: float) -> str:
    if found is None:
        return "does not fit | | | |"
    sizes = ", ".join(str(size) for _, size in found.parts)
    times = f"{first / found.seconds:.2f} times" if first else ""
    waits = f"{found.stalled_s / found.seconds:.0%}"
    return f"{sizes} | {found.seconds * 1e3:.1f} ms | {times} | {waits} | {found.again_share:.0%}"


def _graphs(members_: Any, samples: int, columns: int) -> Any:
    made: dict[int, Any] = {}

    def graph_of(_: int, count: int) -> Any:
        if count not in made:
            shapes = (samples, count, FEATURES * columns), (samples, DENSE), 1
            models = [each.task.model for each in members_[:count]]
            made[count] = traced(models, members_[0].given, shapes, H100, CPU_DEVICE).graph
        return made[count]

    return graph_of


def main() -> None:
    """One of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("peaks", "paper"))
    parser.add_argument("--quick", action="store_true", help="one graph, to see that it runs")
    chosen = parser.parse_args()
    (show_peaks if chosen.table == "peaks" else show_paper)(chosen.quick)


if __name__ == "__main__":
    main()
