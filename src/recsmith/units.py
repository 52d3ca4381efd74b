"""Sizes and times: parsed and printed here and nowhere else; inside they are bytes and seconds."""

import re

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


def format_size(size: float) -> str:
    """A size for people: three significant digits, binary units."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} PiB"


def format_speed(speed: float) -> str:
    """Bytes a second for people: four significant digits, decimal units, as links and memories are sold."""
    for unit in ("B/s", "kB/s", "MB/s", "GB/s"):
        if abs(speed) < 1000:
            return f"{speed:.4g} {unit}"
        speed /= 1000
    return f"{speed:.4g} TB/s"


LEAST_TIME = 1e-12  # seconds: no part of a step is so short


def format_time(seconds: float) -> str:
    """A time for people: four significant digits, from µs to s; what rounding leaves of nothing is 0."""
    if abs(seconds) < LEAST_TIME:
        return "0 µs"
    for limit, scale, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if abs(seconds) < limit:
            return f"{seconds * scale:.4g} {unit}"
    return f"{seconds:.4g} s"


def format_gap(gap: float | None) -> str:
    """A relative gap for people: per cent, or a dash where there is none."""
    if gap is None:
        return "-"
    if gap >= MANY_TIMES:
        return f"{gap:,.0f} times" if gap < MILLION else "over a million times"
    if gap >= 0.1:
        return f"{gap:.0%}"
    return f"{gap * 100:.2g}%" if gap >= LEAST_GAP else f"{LEAST_GAP:.4%}" if gap >= ROUNDING else "0%"
