"""Laws of learned all-to-alls, which hold whatever the weights are: any order and number of ranks, no time below 0."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.exchanged import tensors

from recsmith.costs.neural_comm import INPUTS, WORK, AllToAlls, CommModel
from recsmith.costs.neural_comm_files import comm_model_of
from recsmith.errors import UsageError

SOME = settings(max_examples=60, deadline=None)
MODELS = [comm_model_of(tensors(seed), per_host, "a test") for seed, per_host in ((0, 8), (1, None), (2, 4))]


def drawn(seed: int, ranks: int, exchanges: int = 3) -> tuple[Any, Any, Any]:
    """Bytes out and in, and starts: some of them 0, or all alike."""
    draw = np.random.default_rng(seed)
    sent, received = 10 ** draw.uniform(0, 9, (2, exchanges, ranks)) * (draw.uniform(size=(2, exchanges, ranks)) < 0.9)
    skew = draw.uniform(0, 0.02, (exchanges, ranks)) * (draw.uniform(size=(exchanges, 1)) < 0.5)
    return sent, received, skew


worlds = st.sampled_from([2, 3, 5, 8, 12, 16, 31, 64, 128])
models = st.sampled_from(MODELS)


@SOME
@given(models, st.integers(0, 10**6), worlds, st.booleans())
def test_another_order_of_ranks_is_another_order_of_seconds(model: CommModel, seed: int, ranks: int, forward: bool):
    sent, received, skew = drawn(seed, ranks)
    order = np.random.default_rng(seed).permutation(ranks)
    found = model.seconds(sent, received, skew, forward=forward)
    again = model.seconds(sent[:, order], received[:, order], skew[:, order], forward=forward)
    assert again == pytest.approx(found[:, order], rel=1e-9)


@SOME
@given(models, st.integers(0, 10**6), worlds, st.booleans())
def test_seconds_are_at_least_a_call_and_the_wait(model: CommModel, seed: int, ranks: int, forward: bool):
    sent, received, skew = drawn(seed, ranks)
    found = model.seconds(sent, received, skew, forward=forward)
    assert found.shape == (3, ranks)
    assert np.isfinite(found).all()
    assert (found >= model.alpha + skew.max(axis=1, keepdims=True) - skew).all()


@SOME
@given(models, st.integers(0, 10**6), worlds, st.integers(-64, 64))
def test_only_differences_of_starts_count(model: CommModel, seed: int, ranks: int, later: int):
    sent, received, skew = drawn(seed, ranks)
    skew = np.rint(skew * 2**30) / 2**30  # sums and differences are exact
    found = model.seconds(sent, received, skew, forward=True)
    assert (model.seconds(sent, received, skew + later / 4, forward=True) == found).all()


@SOME
@given(models, st.integers(0, 10**6), worlds)
def test_exchanges_side_by_side_are_those_one_by_one(model: CommModel, seed: int, ranks: int):
    sent, received, skew = drawn(seed, ranks)
    found = model.seconds(sent, received, skew, forward=False)
    for i in range(3):
        assert model.seconds(sent[i], received[i], skew[i], forward=False) == pytest.approx(found[i], rel=1e-12)


def test_what_it_is_told() -> None:
    load = AllToAlls(
        sent=np.array([[10.0, 30.0]]), received=np.array([[20.0, 20.0]]), skew_s=np.array([[1.0, 3.0]]),
        forward=np.array([True]), per_host=1,
    )  # fmt: skip
    told: dict[str, float] = dict(zip(INPUTS, load.inputs()[0, 0].tolist(), strict=True))
    size = ("log sent", "log most sent", "log mean bytes")
    assert [np.exp(told[name]) - 1 for name in size] == pytest.approx([10, 30, 20])
    starts = ("log wait", "log lateness", "log latest", "log mean wait")
    assert [np.exp(told[name]) for name in starts] == pytest.approx([2, 1e-6, 2, 1], rel=1e-5)
    assert (told["log ranks"], told["share across hosts"], told["forward"]) == (np.log(2), 1, 1)
    work = dict(zip(WORK, load.work()[0, 1], strict=True))
    assert (work["call"], work["sent in host"], work["sent across"], work["most sent across"]) == (1, 0, 30, 30)
    assert load.wait_s.tolist() == [[2, 0]]


@pytest.mark.parametrize(("ranks", "per_host", "share"), [(8, 8, 0), (16, 8, 8 / 15), (12, 8, 6 / 11), (64, None, 0)])
def test_what_leaves_a_host(ranks: int, per_host: int | None, share: float) -> None:
    nothing = np.zeros(ranks)
    assert AllToAlls(nothing, nothing, nothing, np.array(True), per_host).across == pytest.approx(share)


@pytest.mark.parametrize(
    ("sent", "received", "skew", "rule"),
    [
        ([1.0], [1.0], [0.0], "at least 2"),
        ([1.0, 2.0], [1.0], [0.0, 0.0], "the same number of ranks"),
        ([1.0, -2.0], [1.0, 1.0], [0.0, 0.0], "sent bytes must be finite and 0 or more"),
        ([1.0, 2.0], [1.0, np.inf], [0.0, 0.0], "received bytes must be finite"),
        ([1.0, 2.0], [1.0, 1.0], [0.0, np.nan], "starts must be finite"),
    ],
)
def test_what_is_no_exchange_is_refused(sent: Any, received: Any, skew: Any, rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        MODELS[0].seconds(np.array(sent), np.array(received), np.array(skew), forward=True)
