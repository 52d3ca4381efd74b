"""Parses and prints sizes and times, and is the only module that does; all other code uses bytes and seconds."""

import math
import re
from collections.abc import Mapping, Sequence

from recsmith.errors import UsageError

_SIZES = {
    "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50,
}  # fmt: skip
# bytes in each unit of link speed; a bit is an eighth of a byte
_SPEEDS = _SIZES | {"Mbit": 10**6 / 8, "Gbit": 10**9 / 8, "Tbit": 10**12 / 8}
# seconds in each unit of time
_TIMES = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_TIME_UNITS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}  # units in which times are printed
_SIZE_UNITS = {name: float(size) for name, size in _SIZES.items() if name == "B" or "i" in name}
LONGEST_WAIT_S = 10 * 365 * 24 * 3600.0
MILLION = 1e6
LEAST_GAP = 1e-6  # smallest relative gap that is shown; gaps between ROUNDING and this are shown as this
MANY_TIMES = 100.0  # relative gaps from this size on are shown as a multiple, not in per cent
ROUNDING = 1e-8  # relative rounding error of summed seconds and of bound proofs: smaller gaps count as 0
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")


def _split(text: str, units: dict[str, float] | dict[str, int], example: str) -> tuple[float, float]:
    match = _QUANTITY.fullmatch(text)
    unit = {name.lower(): name for name in units}.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise UsageError(f"'{text}' is not a quantity with a unit; write for example {example} ({', '.join(units)})")
    return float(match[1]), units[unit]


def parse_size(text: str) -> int:
    """Bytes of a size such as '60GiB' or '80GB', or of '0'; UsageError if another number has no known unit."""
    if text.strip() == "0":
        return 0
    value, unit = _split(text, _SIZES, "60GiB")
    if value * unit >= 2**63:
        raise UsageError(f"'{text[:40]}' is larger than any memory; sizes are below 8192PiB")
    return round(value * unit)


def parse_speed(text: str) -> float:
    """Bytes a second of a speed such as '450GB/s', '3.35TB/s' or, as networks are sold, '400Gbit/s'.

    Upper and lower case matter: 'Gb/s' is refused because it means bits to some people and bytes to others.
    """
    match = _QUANTITY.fullmatch(text.strip().removesuffix("/s")) if text.strip().endswith("/s") else None
    if match is None or match[2] not in _SPEEDS:
        raise UsageError(f"'{text[:40]}' is not a speed with a unit; write 450GB/s in bytes, or 400Gbit/s in bits")
    return float(match[1]) * _SPEEDS[match[2]]


def parse_time(text: str) -> float:
    """Seconds of a time such as '10s', '500ms' or '20m'; UsageError if the unit is missing or unknown."""
    value, unit = _split(text, _TIMES, "10s")
    if value * unit > LONGEST_WAIT_S:
        raise UsageError(f"'{text[:40]}' is longer than 10 years; give a shorter time")
    return value * unit


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun, singular if the number is 1: '1 table', '2,002 tables', '1 try', '3 tries'."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def format_size(size: float) -> "Quantity":
    """A size for people: four significant digits, binary units."""
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
    """A time for people: four significant digits, from µs to s; times below LEAST_TIME are shown as 0."""
    text = f"{seconds:.4g} s"
    if abs(seconds) < LEAST_TIME:
        text = "0 µs"
    else:
        for limit, scale, unit in ((1.0, 1e3, "ms"), (1e-3, 1e6, "µs")):
            text = f"{seconds * scale:.4g} {unit}" if abs(seconds) < limit else text
    return Quantity.of(text, seconds, _TIME_UNITS)


def format_gap(gap: float | None) -> str:
    """A relative gap for people: per cent, a multiple if it is very large, or a dash if there is none."""
    if gap is None:
        return "-"
    if gap >= MANY_TIMES:
        return f"{gap:,.0f} times" if gap < MILLION else "over a million times"
    if gap >= 0.1:
        return f"{gap:.0%}"
    return f"{gap * 100:.2g}%" if gap >= LEAST_GAP else f"{LEAST_GAP:.4%}" if gap >= ROUNDING else "0%"


class Quantity(str):
    """A printed time or size that keeps its amount, so that a table column can be converted to one unit."""

    amount: float
    units: Mapping[str, float]

    @classmethod
    def of(cls, text: str, amount: float, units: Mapping[str, float]) -> "Quantity":
        """Build a quantity from its text, its amount in seconds or bytes, and the sizes of the possible units."""
        made = cls(text)
        made.amount, made.units = amount, units
        return made


SHOWN_DIGITS, MOST_DIGITS, LEAST_DIGITS = 4, 5, 2  # digits of a column's largest number, at most, and of the smallest


def in_one_unit(cells: Sequence[str]) -> list[str]:
    """The cells of a column with all times in one unit and all sizes in one unit, so that numbers can be compared.

    The unit is that of the largest time or size. Only cells made by `format_time` and `format_size` change, and only if
    their units differ. An amount too small for the digits shown is printed as less than the last digit ('<0.01 ms').
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
            if len(named) > 1 or cells[at].startswith("0 "):  # a 0 takes the unit of the other cells
                found[at] = _of_unit(amount / units[unit], decimals, unit)
    return found


def _decimals(largest: float, least: float) -> int:
    """Digits after the point: enough for the largest number and, if that does not get too long, for the smallest."""
    whole = len(f"{largest:.0f}")
    wanted = LEAST_DIGITS - 1 - math.floor(math.log10(least))
    return max(min(max(SHOWN_DIGITS - whole, wanted), MOST_DIGITS - whole), 0)


def _of_unit(number: float, decimals: int, unit: str) -> str:
    """A number with `decimals` digits after the point; one too small for them is shown as less than the last digit."""
    least = 10.0**-decimals
    if LEAST_TIME < abs(number) < least / 2:
        return f"{'-' if number < 0 else ''}<{least:.{decimals}f} {unit}"
    return f"{number:.{decimals}f} {unit}" if abs(number) >= LEAST_TIME else f"0 {unit}"
