"""A step of layers under a schedule: results of the plain step, and the memory that the simulation says."""

from importlib.util import find_spec
from typing import Any

import pytest

from recsmith.data import DataFeature, DataSchema
from recsmith.errors import UsageError
from recsmith.prediction.activations.scheduler import ArraySchedule, partitions, scheduled
from recsmith.training import Run, RunData, RunModel
from recsmith.training.systems.arrays.scheduling.profiling import H100, cpu_rates

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
SCHEMA = DataSchema(
    features=tuple(DataFeature(name=f"f{number}", num_embeddings=100) for number in range(6)), dense=("x", "z"),
    labels=("y",),
)  # fmt: skip
MEMBERS, SAMPLES, COLUMNS = 3, 256, 6 * 16
DEEP = RunModel(bottom=(32,) * 4, top=(64,) * 6)


def members(model: RunModel) -> Any:
    from recsmith.training.systems.arrays.model import member_of

    source: Any = type("Source", (), {"schema": SCHEMA})
    run = Run(data=RunData(train="x"), output="out", model=model)
    return [member_of(f"m{number}", number, run, source) for number in range(MEMBERS)]


class Traced:
    """Members with their data, the graphs of some of them, and what autograd makes of a step."""

    def __init__(self, model: RunModel) -> None:
        import torch

        torch.manual_seed(0)
        self.members = members(model)
        self.pooled, self.dense = torch.randn(SAMPLES, MEMBERS, COLUMNS), torch.randn(SAMPLES, 2)
        self.above = torch.randn(MEMBERS, SAMPLES, 1)
        self.steps: dict[int, Any] = {}

    def graph(self, _: int, count: int) -> Any:
        import torch

        from recsmith.training.systems.arrays.scheduling.profiling import traced

        if count not in self.steps:
            models, shapes = (
                [each.task.model for each in self.members[:count]],
                ((SAMPLES, count, COLUMNS), (SAMPLES, 2), 1),
            )
            self.steps[count] = traced(models, self.members[0].taken[0].given, shapes, cpu_rates(), torch.device("cpu"))
        return self.steps[count].graph

    def schedule(self, share: float, **words: Any) -> ArraySchedule:
        most = words.pop("most", None)
        whole = scheduled(self.graph, partitions([MEMBERS], most), float("inf"), link=None)
        return scheduled(self.graph, partitions([MEMBERS], most), share * whole.peak_bytes, **{"link": None, **words})

    def run(self, schedule: ArraySchedule) -> list[Any]:
        """Logits, and gradients of pooled vectors and of weights of each member."""
        from recsmith.training.systems.arrays.scheduling.running import HostCopies, run_schedule

        inputs, sizes = [], [count for _, count in schedule.parts]
        places = [slice(sum(sizes[:each]), sum(sizes[: each + 1])) for each in range(len(sizes))]
        for place in places:
            weights = [each.detach() for member in self.members[place] for each in member.task.model.parameters()]
            inputs.append([*weights, self.pooled[:, place], self.dense])
        steps = [self.steps[count] for count in sizes]
        found = run_schedule(schedule, steps, inputs, lambda part, _: self.above[places[part]], HostCopies())
        return [each for logits, *gradients in found for each in (logits, *gradients)]

    def right(self, schedule: ArraySchedule) -> list[Any]:
        """The same by autograd, one member at a time."""
        import torch

        found: list[Any] = []
        for _, count in schedule.parts:
            part: list[Any] = []
            for _ in range(count):
                number = sum(len(each[0]) for each in found) + len(part)
                member, vectors = self.members[number], self.pooled[:, number].clone().requires_grad_()
                member.taken[0].given.pooled = vectors
                logits = member.task.model(self.dense, None)
                weights = list(member.task.model.parameters())
                made = torch.autograd.grad(logits, [*weights, vectors], self.above[number])
                part.append((logits.detach(), made[:-1], made[-1]))
            logits, of_weights, of_pooled = zip(*part, strict=True)
            found.append((logits, [each for of_member in of_weights for each in of_member], torch.stack(of_pooled, 1)))
        return [each for logits, weights, pooled in found for each in (torch.stack(logits), *weights, pooled)]


@pytest.fixture(scope="module")
def deep() -> Traced:
    return Traced(DEEP)


@pytest.mark.parametrize(
    ("share", "words", "given_up"),
    [
        (1.0, {}, set()), (0.85, {"most": 1}, {"recompute"}), (0.5, {}, None),
        (0.85, {"most": 1, "link": H100.link, "ways": ("swap",)}, {"swap"}),
    ],
)  # fmt: skip
def test_results_are_those_of_autograd(deep: Traced, share: float, words: Any, given_up: set[str] | None) -> None:
    import torch

    schedule = deep.schedule(share, **words)
    if given_up is not None:
        assert {each for ways in schedule.ways.values() for each in ways.values()} == given_up
    for mine, right in zip(deep.run(schedule), deep.right(schedule), strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("share", "most"), [(1.0, None), (1.0, 1), (0.85, 1), (0.5, None)])
def test_the_simulated_peak_is_the_allocators(deep: Traced, share: float, most: int | None) -> None:
    schedule = deep.schedule(share, most=most)
    deep.run(schedule)
    assert schedule.peak_bytes == pytest.approx(peak_of(lambda: deep.run(schedule)), rel=0.05)


def peak_of(run: Any) -> int:
    """The most bytes that PyTorch's allocator has handed out at once, as its profiler saw them."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    live, peak = 0, 0
    for event in sorted(seen.profiler.kineto_results.events(), key=lambda each: each.start_ns()):  # type: ignore[union-attr]
        if event.name() == "[memory]":
            live += event.nbytes()  # type: ignore[attr-defined]
            peak = max(peak, live)
    return peak


def test_what_cannot_be_done_once_more_is_refused_or_kept() -> None:
    import torch
    from torch import nn

    from recsmith.training.systems.arrays.scheduling.profiling import traced

    class Odd(nn.Module):
        def __init__(self, inside: nn.Module) -> None:
            super().__init__()
            self.first, self.inside, self.last = nn.Linear(2, 8), inside, nn.Linear(8, 1)

        def forward(self, dense: torch.Tensor, _: Any) -> torch.Tensor:
            return self.last(self.inside(self.first(dense)))

    class Counting(nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return values * 2 if values.sum() > 0 else values

    class Drawing(nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return values * torch.rand_like(values)

    given, shapes = type("Given", (), {})(), ((4, 1, 8), (4, 2), 1)

    def made(inside: nn.Module) -> Any:
        return traced([Odd(inside)], given, shapes, cpu_rates(), torch.device("cpu"))

    with pytest.raises(UsageError, match=r"layer_memory: .* in place .*relu_.* make a new tensor"):
        made(nn.ReLU(inplace=True))
    with pytest.raises(UsageError, match="layer_memory: the model's step cannot be traced"):
        made(Counting())
    kept = [each for each in made(Drawing()).graph.operations if not each.repeats]
    assert len(kept) == 1
    assert kept[0].forward


def test_copies_on_streams_bring_back_what_left() -> None:
    import torch

    from recsmith.training.systems.arrays.scheduling.running import StreamedCopies

    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    copies, values = StreamedCopies(torch.device("cuda")), torch.randn(64, 1000, device="cuda").t()
    kept = copies.leave(values)
    copies.left(kept)
    back = copies.fetch(kept)
    copies.fetched()
    assert back.stride() == values.stride()
    assert kept.is_pinned()
    assert torch.equal(back, values)
