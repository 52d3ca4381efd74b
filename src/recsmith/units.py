"""Sizes and times: parsed and printed here and nowhere else; inside they are bytes and seconds."""

import math
import re
from collections.abc import Mapping, Sequence

from recsmith.errors import UsageError

_SIZES = {
    "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50,
}  # fmt: skip
# Bytes in each unit of what a link carries; bits are an eighth.
_SPEEDS = _SIZES | {"Mbit": 10**6 / 8, "Gbit": 10**9 / 8, "Tbit": 10**12 / 8}
# Seconds in each unit of time.
_TIMES = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_TIME_UNITS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}  # that are printed
_SIZE_UNITS = {name: float(size) for name, size in _SIZES.items() if name == "B" or "i" in name}
LONGEST_WAIT_S = 10 * 365 * 24 * 3600.0
MILLION = 1e6
LEAST_GAP = 1e-6  # that is told apart; smaller ones are rounded up to it
MANY_TIMES = 100.0  # above it, a relative gap is told as a multiple
ROUNDING = 1e-8  # relative, of sums of seconds and of the proofs of bounds: smaller gaps are not told apart
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")


def _split(text: str, units: dict[str, float] | dict[str, int], example: str) -> tuple[float, float]:
    match = _QUANTITY.fullmatch(text)
    unit = {name.lower(): name for name in units}.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise UsageError(f"'{text}' is not a quantity with a unit; write for example {example} ({', '.join(units)})")
    return float(match[1]), units[unit]


def parse_size(text: str) -> int:
    """Bytes of a size such as '60GiB' or '80GB', or of '0'; UsageError for another number without a known unit."""
    if text.strip() == "0":
        return 0
    value, unit = _split(text, _SIZES, "60GiB")
    if value * unit >= 2**63:
        raise UsageError(f"'{text[:40]}' is larger than any memory; sizes are below 8192PiB")
    return round(value * unit)


def parse_speed(text: str) -> float:
    """Bytes a second of a speed such as '450GB/s', '3.35TB/s' or, as networks are sold, '400Gbit/s'.

    Upper and lower case matter here: 'Gb/s' means bits to some and bytes to others, and is refused.
    """
    match = _QUANTITY.fullmatch(text.strip().removesuffix("/s")) if text.strip().endswith("/s") else None
    if match is None or match[2] not in _SPEEDS:
        raise UsageError(f"'{text[:40]}' is not a speed with a unit; write 450GB/s in bytes, or 400Gbit/s in bits")
    return float(match[1]) * _SPEEDS[match[2]]


def parse_time(text: str) -> float:
    """Seconds of a time such as '10s', '500ms' or '20m'; UsageError without a known unit."""
    value, unit = _split(text, _TIMES, "10s")
    if value * unit > LONGEST_WAIT_S:
        raise UsageError(f"'{text[:40]}' is longer than 10 years; give a shorter time")
    return value * unit


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number and what it counts, in the singular for one: '1 table', '2,002 tables', '1 try', '3 tries'."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def format_size(size: float) -> "Quantity":
    """A size for people: three significant digits, binary units."""
    left = size
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(left) < 1024:
            return Quantity.of(f"{left:.0f} B" if unit == "B" else f"{left:.4g} {unit}", size, _SIZE_UNITS)
        left /= 1024
    return Quantity.of(f"{left:.4g} PiB", size, _SIZE_UNITS)


def format_speed(speed: float) -> str:
    """Bytes a second for people: four significant digits, decimal units, as links and memories are sold."""
    for unit in ("B/s", "kB/s", "MB/s", "GB/s"):
        if abs(speed) < 1000:
            return f"{speed:.4g} {unit}"
        speed /= 1000
    return f"{speed:.4g} TB/s"


LEAST_TIME = 1e-12  # seconds: no part of a step is so short


def format_time(seconds: float) -> "Quantity":
    """A time for people: four significant digits, from µs to s; what rounding leaves of nothing is 0."""
    text = f"{seconds:.4g} s"
    if abs(seconds) < LEAST_TIME:
        text = "0 µs"
    else:
        for limit, scale, unit in ((1.0, 1e3, "ms"), (1e-3, 1e6, "µs")):
            text = f"{seconds * scale:.4g} {unit}" if abs(seconds) < limit else text
    return Quantity.of(text, seconds, _TIME_UNITS)


def format_gap(gap: float | None) -> str:
    """A relative gap for people: per cent, or a dash where there is none."""
    if gap is None:
        return "-"
    if gap >= MANY_TIMES:
        return f"{gap:,.0f} times" if gap < MILLION else "over a million times"
    if gap >= 0.1:
        return f"{gap:.0%}"
    return f"{gap * 100:.2g}%" if gap >= LEAST_GAP else f"{LEAST_GAP:.4%}" if gap >= ROUNDING else "0%"


class Quantity(str):
    """A time or a size as it is printed, which still knows how much it is, so that a column can have one unit."""

    amount: float
    units: Mapping[str, float]

    @classmethod
    def of(cls, text: str, amount: float, units: Mapping[str, float]) -> "Quantity":
        """A text with its amount, in seconds or bytes, and how much each unit is that it may have instead."""
        made = cls(text)
        made.amount, made.units = amount, units
        return made


SHOWN_DIGITS, MOST_DIGITS, LEAST_DIGITS = 4, 5, 2  # of a column's largest number, at most, and of its least


def in_one_unit(cells: Sequence[str]) -> list[str]:
    """A column's cells with times, and sizes, in the unit of the largest of each, so that numbers can be compared.

    Cells that `format_time` and `format_size` made change; others stay as they are, and so do all where they have one
    unit already. What is too small for the digits that are shown is told as less than the last of them.
    """
    found = list(cells)
    for units in (_TIME_UNITS, _SIZE_UNITS):
        amounts = {
            at: cell.amount for at, cell in enumerate(cells) if isinstance(cell, Quantity) and cell.units is units
        }
        moving = [abs(each) for at, each in amounts.items() if not cells[at].startswith("0 ")]
        named = {cells[at].split()[-1] for at in amounts if not cells[at].startswith("0 ")}
        if not named:
            continue
        unit = max(named, key=lambda name: units[name])
        decimals = _decimals(max(moving) / units[unit], min(moving) / units[unit])
        for at, amount in amounts.items():
            if len(named) > 1 or cells[at].startswith("0 "):  # a 0 takes the unit of the others
                found[at] = _of_unit(amount / units[unit], decimals, unit)
    return found


def _decimals(largest: float, least: float) -> int:
    """Digits behind the point: enough for the largest number and, as far as that does not get too long, the least."""
    whole = len(f"{largest:.0f}")
    wanted = LEAST_DIGITS - 1 - math.floor(math.log10(least))
    return max(min(max(SHOWN_DIGITS - whole, wanted), MOST_DIGITS - whole), 0)


def _of_unit(number: float, decimals: int, unit: str) -> str:
    """A number with so many digits behind the point; one that they cannot show is told as less than the last digit."""
    least = 10.0**-decimals
    if LEAST_TIME < abs(number) < least / 2:
        return f"{'-' if number < 0 else ''}<{least:.{decimals}f} {unit}"
    return f"{number:.{decimals}f} {unit}" if abs(number) >= LEAST_TIME else f"0 {unit}"
