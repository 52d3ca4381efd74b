"""Rounding to bf16 has PyTorch's bits, and halves of fp32 numbers join to them, whatever the bits are."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch: Any = pytest.importorskip("torch")

from recsmith.training.systems.halves.bfloat16 import join, nearest, split, stochastic, truncated  # noqa: E402

LOWERS = (0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
NEAREST = pytest.mark.parametrize("to_nearest", [True, False])


def numbers(*patterns: int) -> Any:
    """fp32 numbers of 32-bit patterns."""
    return torch.tensor(patterns, dtype=torch.int64).to(torch.int32).view(torch.float32)


def edges() -> Any:
    """Every upper half with lower ones at the edges of rounding."""
    upper = torch.arange(1 << 16, dtype=torch.int64) << 16
    return (upper[:, None] + torch.tensor(LOWERS)).reshape(-1).to(torch.int32).view(torch.float32)


def drawn(count: int, seed: int = 0) -> Any:
    """Random patterns."""
    draws = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**31), 2**31, (count,), generator=draws).to(torch.int32).view(torch.float32)


def bits(values: Any) -> Any:
    """The patterns of bf16 or fp32 numbers."""
    return values.view(torch.int16 if values.dtype == torch.bfloat16 else torch.int32)


@pytest.mark.parametrize("count", [100_000, pytest.param(20_000_000, marks=pytest.mark.soak)])
def test_nearest_has_the_bits_of_pytorch(count: int) -> None:
    for values in (edges(), drawn(count)):
        assert torch.equal(bits(nearest(values)), bits(values.to(torch.bfloat16)))


@NEAREST
@pytest.mark.parametrize("count", [100_000, pytest.param(20_000_000, marks=pytest.mark.soak)])
def test_halves_join_to_the_bit(count: int, to_nearest: bool) -> None:
    for values in (edges(), drawn(count)):
        upper, lower = split(values, to_nearest=to_nearest)
        joined, known = join(upper, lower, to_nearest=to_nearest), ~values.isnan()
        assert torch.equal(bits(joined)[known], bits(values)[known])
        assert joined[~known].isnan().all()
        assert upper[~known].isnan().all(), "who looks at the upper half alone sees that the weight is lost"
        assert int((~known).sum()) > 100


def test_the_upper_half_is_the_nearest_number_but_for_halves_of_a_step() -> None:
    values = drawn(100_000)
    values = values[values.isfinite()]
    halves = (values.view(torch.int32) & 0xFFFF) == 0x8000
    upper = split(values, to_nearest=True)[0]
    assert torch.equal(bits(upper)[~halves], bits(nearest(values))[~halves])
    assert len(values) > 90_000


def test_truncation_leaves_the_lower_bits_out() -> None:
    values = edges()
    kept = ~values.isnan()
    assert torch.equal(bits(truncated(values).float())[kept], (bits(values) & -0x10000)[kept])
    assert torch.equal(bits(split(values, to_nearest=False)[0])[kept], bits(truncated(values))[kept])


def test_a_nan_of_arithmetic_stays_one_in_every_form() -> None:
    made = numbers(0x7F800000) - numbers(0x7F800000)
    for form in (nearest(made), truncated(made), stochastic(made), split(made, to_nearest=True)[0]):
        assert form.isnan().all()
    patterns = numbers(0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF)
    for round_ in (nearest, truncated, stochastic):
        assert torch.equal(bits(round_(patterns)), bits(patterns.to(torch.bfloat16)))


@given(st.integers(0, 0xFFFF))
def test_stochastic_rounding_is_right_in_the_mean(lower: int) -> None:
    torch.manual_seed(lower)
    tries = 4000
    rounded = stochastic(numbers(0x3F800000 + lower).expand(tries).contiguous())  # between 1 and 1 + 2^-7
    above = int((rounded > 1).sum())
    chance = lower / 0x10000
    assert set(rounded.unique().tolist()) <= {1.0, 1.0078125}
    assert abs(above - tries * chance) <= 6 * (tries * chance * (1 - chance)) ** 0.5 + 1


def test_stochastic_rounding_leaves_bf16_numbers_as_they_are() -> None:
    values = edges()
    exact = values[(values.view(torch.int32) & 0xFFFF) == 0]
    exact = exact[~exact.isnan()]
    assert torch.equal(bits(stochastic(exact).float()), bits(exact))


@NEAREST
def test_any_shape_splits(to_nearest: bool) -> None:
    for shape in ((), (0, 4), (3,), (2, 3, 4)):
        values = torch.randn(shape)
        upper, lower = split(values, to_nearest=to_nearest)
        assert upper.shape == lower.shape == values.shape
        assert torch.equal(join(upper, lower, to_nearest=to_nearest), values)
