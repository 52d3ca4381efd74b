"""Advice as text for people, and as plain data."""

from collections.abc import Iterator

from recsmith.analyses.advice import Advice, Advised, JobPrice, error_of_gain
from recsmith.files import Raw, encode
from recsmith.reports.layout import plain_line
from recsmith.units import format_size, format_time

SCHEMA = "recsmith/advice/1"
TITLES = {
    "pays": "Pays",
    "tie": "May pay: closer than the price can tell",
    "memory": "Frees memory",
    "no": "Does not pay here",
    "cannot": "Cannot be had here",
}


def advice_lines(advice: Advice) -> list[str]:
    """The advice in a sentence, what it rests on, and every switch under its verdict."""
    lines = [plain_line("advice", advice.verdict), *(plain_line("base", each) for each in advice.about)]
    lines.append(plain_line("error", _error(advice.base)))
    number = 0
    for verdict, title in TITLES.items():
        of_it = [each for each in advice.switches if each.verdict == verdict]
        if of_it:
            lines += ["", title]
        for advised in of_it:
            number += verdict == "pays"
            lines += _switch_lines(advice.base, advised, f"{number}. " if verdict == "pays" else "")
    if len(advice.together) > 1:
        joined = advice.joined
        lines += ["", "Together", *_indented(
            ", then ".join(advice.together),
            f"{_steps(advice.base, joined)}: saves {advice.gain:.1%}, "
            f"{_between(advice.gain, error_of_gain(advice.gain, joined))}",
        )]  # fmt: skip
    return lines


def _error(base: JobPrice) -> str:
    apart = f", and by no less than {base.apart:.1%}, below which steps are not told apart" if base.apart else ""
    return f"the step may be off by {base.error:.0%}, and a gain by as much of itself{apart}"


def _switch_lines(base: JobPrice, advised: Advised, number: str) -> Iterator[str]:
    switch = advised.switch
    between = f", {_between(advised.gain, advised.gain_error)}" if advised.verdict in ("pays", "tie") else ""
    yield f"  {number}{switch.name}: {advised.why}{between}"
    if advised.price is not None and advised.verdict in ("pays", "tie", "memory"):
        memory = f"{format_size(base.memory_bytes)} -> {format_size(advised.price.memory_bytes)}"
        yield from _indented(
            f"{_steps(base, advised.price)}; fullest device {memory}",
            f"quality: {switch.quality}",
            f"switch on: {switch.change}   (docs/{switch.page})",
        )


def _between(gain: float, error: float) -> str:
    return f"between {gain - error:.1%} and {gain + error:.1%}"


def _steps(before: JobPrice, after: JobPrice) -> str:
    work = "" if before.samples == after.samples else f" for {after.samples:,} samples in place of {before.samples:,}"
    return f"step {format_time(before.step_s)} -> {format_time(after.step_s)}{work}"


def _indented(*texts: str) -> list[str]:
    return [f"       {text}" for text in texts]


def advice_to_raw(advice: Advice) -> Raw:
    """Plain data of schema recsmith/advice/1."""
    return {"schema": SCHEMA, "verdict": advice.verdict, "gain": advice.gain, **encode(advice)}
