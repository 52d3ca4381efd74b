"""Sizes and times: what is parsed, what is refused, what is printed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.errors import UsageError
from recsmith.units import (
    counted,
    format_gap,
    format_size,
    format_time,
    in_one_unit,
    parse_size,
    parse_speed,
    parse_time,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1B", 1),
        ("60GiB", 60 * 2**30),
        ("60Gib", 60 * 2**30),
        ("60gib", 60 * 2**30),
        (" 60 GiB ", 60 * 2**30),
        ("80GB", 80 * 10**9),
        ("80gb", 80 * 10**9),
        ("0.5KiB", 512),
        ("1.5MB", 1_500_000),
        ("2TiB", 2 * 2**40),
        ("1PB", 10**15),
        ("0GiB", 0),
    ],
)
def test_sizes_carry_their_unit(text: str, size: int):
    assert parse_size(text) == size


def test_every_unit_is_a_power_of_1000_or_1024():
    for power, letter in enumerate("KMGTP", start=1):
        assert parse_size(f"1{letter}B") == 1000**power
        assert parse_size(f"1{letter}iB") == 1024**power


@pytest.mark.parametrize(
    ("text", "speed"),
    [("450GB/s", 450e9), ("3.35 TB/s", 3.35e12), (" 1GiB/s ", 2**30), ("400Gbit/s", 50e9), ("100Mbit/s", 12.5e6)],
)
def test_speeds_are_bytes_a_second_or_bits(text: str, speed: float):
    assert parse_speed(text) == speed


@pytest.mark.parametrize(
    "text", ["450GB", "400Gb/s", "450gb/s", "450", "GB/s", "-1GB/s", "1e3GB/s", "450GB/s/s", "/s", ""]
)
def test_a_speed_whose_unit_may_mean_two_things_is_refused(text: str):
    with pytest.raises(UsageError, match="is not a speed with a unit; write 450GB/s in bytes, or 400Gbit/s in bits"):
        parse_speed(text)


@given(st.integers(0, 2**53))
def test_whole_bytes_are_exact(size: int):
    assert parse_size(f"{size}B") == size


@pytest.mark.parametrize(
    "text",
    ["60", "", "GiB", "-5GiB", "+5GiB", "1e3GiB", "60G", "60 Gi B", ".5GiB", "5.GiB", "nanGiB", "infB", "\u0661GiB"],
)
def test_a_size_without_number_or_unit_is_refused(text: str):
    with pytest.raises(UsageError, match=r"is not a quantity with a unit; write for example 60GiB \(B, KB, "):
        parse_size(text)


@pytest.mark.parametrize("text", ["9" * 400 + "GiB", "9999999999PiB"])
def test_an_absurd_size_is_refused(text: str):
    with pytest.raises(UsageError, match="larger than any memory"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 10.0), ("500ms", 0.5), ("20m", 1200.0), ("2H", 7200.0), ("0s", 0.0)]
)
def test_times_carry_their_unit(text: str, seconds: float):
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["10", "", "s", "-1s", "10 sec", "1d", "1:30"])
def test_a_time_without_number_or_unit_is_refused(text: str):
    with pytest.raises(UsageError, match=r"write for example 10s \(ms, s, m, h\)"):
        parse_time(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (97.36 * 2**30, "97.36 GiB"),
        (2**60, "1024 PiB"),
        (-2048, "-2 KiB"),
    ],
)
def test_sizes_are_printed_in_binary_units(size: float, text: str):
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 µs"),
        (1.084e-13, "0 µs"),  # what rounding leaves of no wait
        (-1.084e-13, "0 µs"),
        (1e-12, "1e-06 µs"),
        (7.6e-5, "76 µs"),
        (0.0123456, "12.35 ms"),
        (1.0, "1 s"),
        (75.0, "75 s"),
    ],
)
def test_times_are_printed_with_four_digits(seconds: float, text: str):
    assert format_time(seconds) == text


@pytest.mark.parametrize(
    ("gap", "text"),
    [(None, "-"), (0.0, "0%"), (1e-9, "0%"), (1e-5, "0.001%"), (0.00289, "0.29%"), (0.0999, "10%"), (0.5, "50%")],
)
def test_gaps_are_printed_in_per_cent(gap: float | None, text: str):
    assert format_gap(gap) == text


@given(st.floats(0, 10))
def test_a_gap_is_never_printed_with_an_exponent(gap: float):
    assert "e" not in format_gap(gap)


@pytest.mark.parametrize(("number", "text"), [(0, "0 tables"), (1, "1 table"), (2, "2 tables"), (2002, "2,002 tables")])
def test_what_is_counted_is_singular_for_one(number: int, text: str):
    assert counted(number, "table") == text
    assert counted(1, "try", "tries") == "1 try"
    assert counted(3, "try", "tries") == "3 tries"


S, B = format_time, format_size


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        ([S(1.129e-3), S(114e-6), S(9.231e-6), S(0)], ["1.1290 ms", "0.1140 ms", "0.0092 ms", "0 ms"]),
        ([S(1.129e-3), S(114e-6)], ["1.129 ms", "0.114 ms"]),
        ([B(76.85 * 2**30), B(1020 * 2**20), B(3), "-", ""], ["76.850 GiB", "0.996 GiB", "<0.001 GiB", "-", ""]),
        ([S(2), S(-3e-3), S(-1e-6), S(1e-6)], ["2.0000 s", "-0.0030 s", "-<0.0001 s", "<0.0001 s"]),
        ([S(1e-3), S(30.2e-3), S(0)], ["1 ms", "30.2 ms", "0 ms"]),  # have one unit already
        (["4%", "3 tables", "1.2 ms", S(5e-6)], ["4%", "3 tables", "1.2 ms", "5 µs"]),
        ([S(2), B(1024), S(1e-3)], ["2.0000 s", "1 KiB", "0.0010 s"]),
        ([S(0), S(0)], ["0 µs", "0 µs"]),
        ([], []),
    ],
)
def test_a_column_has_one_unit_and_no_number_is_lost(cells: list[str], shown: list[str]):
    assert in_one_unit(cells) == shown


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=8))
def test_numbers_of_a_column_are_those_that_they_were(seconds: list[float]):
    shown = in_one_unit([format_time(each) for each in seconds])
    units = {cell.split()[-1] for cell in shown}
    assert len(units) == 1
    scale = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}[units.pop()]
    for cell, amount in zip(shown, seconds, strict=True):
        number = cell.split()[0]
        told = float(number.lstrip("<")) * scale
        assert (
            told > amount if number.startswith("<") else abs(told - amount) <= max(5e-4 * amount, 5e-4 * max(seconds))
        )
