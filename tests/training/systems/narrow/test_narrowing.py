"""Narrow layers: which units go together, that a whole model computes the same, and what becomes of parked state."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torchrec")

import torch
import torch.nn.functional as fn
from hypothesis import given
from hypothesis import strategies as st
from support.systems import needs_systems
from torch import nn

from recsmith.errors import CorruptFile, UsageError
from recsmith.files import encode
from recsmith.training import Run, RunData
from recsmith.training.run import load_run
from recsmith.training.systems.narrow.deciding import check_units
from recsmith.training.systems.narrow.layers import NarrowedLayers
from recsmith.training.systems.narrow.settings import NarrowSettings, NarrowState, Units
from recsmith.training.systems.narrow.units import units_of

pytestmark = pytest.mark.usefixtures("torchrec")


def layers(*sizes: int) -> nn.Sequential:
    made: list[nn.Module] = []
    for before, after in pairwise(sizes):
        made += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*made[:-1])


class Own(nn.Module):
    """Two readers of one layer, a function of fn, a concatenation, a norm, a sum, and a layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.left, self.right = nn.Linear(4, 96), nn.Linear(96, 80), nn.Linear(96, 80)
        self.deep, self.wide = nn.Linear(80, 72), nn.Linear(4, 72)
        self.normed, self.norm = nn.Linear(144, 64), nn.LayerNorm(64)
        self.twice, self.last = nn.Linear(64, 64), nn.Linear(64, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = fn.gelu(self.first(x))
        added = torch.relu(self.left(hidden) + self.right(hidden))
        both = torch.cat([self.deep(added).relu(), self.wide(x)], dim=1)
        return self.last(self.twice(self.twice(self.norm(self.normed(both)))))


class Branching(nn.Module):
    """Code that fx cannot follow, around a part that it can."""

    def __init__(self) -> None:
        super().__init__()
        self.part, self.tied = layers(4, 64, 64, 3), nn.Linear(3, 64)
        self.out = nn.Linear(64, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.tied(self.part(x))) if x.sum() > 0 else self.out(self.tied(self.part(-x)))


def test_units_are_those_that_linear_layers_alone_read() -> None:
    assert units_of(Own()) == [Units(96, "first", ("left", "right"))]
    assert units_of(Branching()) == [Units(64, "part.0", ("part.2",)), Units(64, "part.2", ("part.4",))]
    tied = layers(64, 64, 64, 1)
    tied[2].weight = tied[0].weight
    assert units_of(tied) == []
    listened = layers(4, 64, 64, 1)
    listened[2].register_forward_hook(lambda *_: None)
    assert units_of(listened) == []


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (nn.ReLU(), "no linear layer; leave it out"),
        (
            nn.Sequential(nn.Linear(4, 96), nn.LayerNorm(96), nn.Linear(96, 1)),
            "none of the 2 linear layers makes units",
        ),
        (layers(4, 48, 1), "widest hidden layer has 48 units; it pays from 64 on"),
    ],
)
def test_models_without_such_units_are_refused(model: nn.Module, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_units(model)


def narrowed(model: nn.Module, optimizer: Any, hook: Any = None, **words: Any) -> tuple[NarrowedLayers, Any]:
    """The layers of a model of 40 steps, narrow in 10 to 30, and the job that they are of."""
    made = NarrowedLayers(
        model, NarrowSettings(cycles=1, dense_at_start=1 / 3, dense_at_end=0.25, **words), units_of(model)
    )
    parts = SimpleNamespace(optimizers=[("dense", optimizer)])
    made.begin(40, None)
    return made, SimpleNamespace(optimizer=parts, hook=hook, model=model)


@given(keep=st.floats(0.05, 0.95), seed=st.integers(0, 99))
def test_a_whole_model_computes_what_its_narrow_one_does(keep: float, seed: int) -> None:
    """While units are parked, and when they are back; and the kept ones are those that matter most."""
    torch.manual_seed(seed)
    model = layers(4, 96, 72, 2).double()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    x = torch.randn(9, 4, dtype=torch.float64)
    made, job = narrowed(model, torch.optim.SGD(model.parameters(), lr=0.1), keep=keep)
    assert made.before(9, job) is None
    assert made.before(10, job)
    inside = model(x)
    assert model[0](x).shape == (9, made.settings.kept(96))
    whole = layers(4, 96, 72, 2).double()
    whole.load_state_dict(model.state_dict())
    assert torch.allclose(inside, whole(x), rtol=1e-12, atol=1e-12)
    assert made.before(30, job)
    assert model[0](x).shape == (9, 96)
    assert torch.allclose(inside, model(x), rtol=1e-12, atol=1e-12)
    matter = before["0.weight"].norm(dim=1) * before["2.weight"].norm(dim=0)
    kept = model.state_dict()["2.weight"].abs().sum(0) > 0
    assert matter[kept].min() >= (matter[~kept].max() if (~kept).any() else 0)
    assert torch.equal(before["0.weight"], model.state_dict()["0.weight"]), "what leads to a unit stays"


OPTIMIZERS = {
    "adam": lambda each: torch.optim.Adam(each, lr=0.01),
    "adamw": lambda each: torch.optim.AdamW(each, lr=0.01, weight_decay=0),
    "adagrad": lambda each: torch.optim.Adagrad(each, lr=0.01),
    "sgd": lambda each: torch.optim.SGD(each, lr=0.01, momentum=0.9, nesterov=True),
    "rmsprop": lambda each: torch.optim.RMSprop(each, lr=0.001, momentum=0.5, centered=True),
}


@needs_systems("thresholds")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_parked_units_stay_as_they_are_and_others_train(name: str) -> None:
    from recsmith.training.systems.thresholds.dense import ParameterState

    torch.manual_seed(0)
    model = layers(4, 96, 72, 2)
    optimizer = OPTIMIZERS[name](model.parameters())
    residuals = {key: ParameterState(torch.ones(each.numel())) for key, each in model.named_parameters()}
    made, job = narrowed(model, optimizer, SimpleNamespace(of=residuals))
    job.model = model

    def train(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            x = torch.randn(32, 4)
            (model(x) - 3 * x[:, :2]).square().mean().backward()
            optimizer.step()

    train(5)
    made.before(10, job)
    middle: Any = model[2]
    parked = torch.ones(72, 96, dtype=torch.bool)
    parked[middle.rows[:, None], middle.columns] = False
    assert bool((residuals["2.weight"].left.reshape(72, 96) == 0)[parked].all())
    assert bool((residuals["2.weight"].left.reshape(72, 96) == 1)[~parked].all())
    before, sums = middle.weight.detach().clone(), optimizer.state[middle.weight].get("sum", torch.zeros(())).clone()
    train(5)
    after = middle.weight.detach().clone()
    assert torch.equal(before[parked], after[parked])
    assert bool((before != after)[~parked].float().mean() > 0.5)
    for key, value in optimizer.state[middle.weight].items():
        if value is not None and value.shape == (72, 96):
            assert torch.equal(value[parked], sums[parked]) if key == "sum" else bool((value[parked] == 0).all())
    made.before(30, job)
    for key in {"sum", "exp_avg_sq", "square_avg"} & optimizer.state[middle.weight].keys():
        squares = optimizer.state[middle.weight][key]
        assert squares[parked].unique().item() == squares[~parked].median() > 0
    train(5)
    assert bool((middle.weight.detach() != after)[parked].float().mean() > 0.5), "all train at the end"


def test_phases_share_steps_out_and_say_when_one_is_too_short() -> None:
    phases = NarrowSettings().phases(1000)
    assert [(each.first, each.end, each.narrow) for each in phases] == [
        (0, 85, False), (85, 425, True), (425, 510, False), (510, 850, True), (850, 1000, False),
    ]  # fmt: skip
    assert not NarrowSettings(dense_at_end=0).phases(300)[0].narrow
    assert NarrowSettings(dense_at_end=0, cycles=1).phases(300)[-1].narrow
    with pytest.raises(UsageError, match=r"dense phase of 8 of the 100 steps, and a phase takes at least 10; give few"):
        NarrowSettings().phases(100)
    with pytest.raises(UsageError, match="nobody knows how many it has; give `steps`"):
        NarrowSettings().phases(None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"keep": 0.0}, r"keep is 0.0; it lies between 0 and 1"),
        ({"keep": 1.0}, r"keep is 1.0; it lies between 0 and 1"),
        ({"keep": float("nan")}, "keep is nan"),
        ({"cycles": 0}, "cycles is 0"),
        ({"dense_at_start": 0.0}, "dense_at_start is 0.0"),
        ({"dense_at_end": 1.0}, "dense_at_end is 1.0; it lies from 0 to below 1"),
    ],
)
def test_settings_out_of_range_are_refused(words: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        NarrowSettings(**words)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("model.narrow.keep=2", "the run: model.narrow.keep is 2.0; it lies between 0 and 1"),
        ("model.narrow.cycle=3", "the run: model.narrow.cycle is not a known field; did you mean 'cycles'?"),
    ],
)
def test_a_run_says_what_is_wrong_in_a_sentence(setting: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        load_run(Run(data=RunData(train="x"), output="out"), (setting,))
    assert str(refused.value).replace("'", "").startswith(said.replace("'", ""))


@pytest.mark.parametrize("kept", [((1, 0),), ((0, 96),), ((0, 0),), ((0,), (1,)), ()])
def test_a_checkpoint_of_other_layers_is_refused(kept: tuple[tuple[int, ...], ...]) -> None:
    model = layers(4, 96, 1)
    made, _ = narrowed(model, torch.optim.SGD(model.parameters(), lr=0.1), keep=0.05)
    with pytest.raises(CorruptFile, match="keeps other units"):
        made.begin(40, encode(NarrowState(steps=40, kept=kept)))
