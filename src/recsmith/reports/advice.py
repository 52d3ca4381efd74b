"""Advice as text for people, and as plain data."""

from collections.abc import Iterator, Sequence

from recsmith.analyses.advice import Advice, Advised, Tried
from recsmith.analyses.aims import JobPrice
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
            f"{_between(advice.gain, advice.aim.error(advice.gain, joined))}",
        )]  # fmt: skip
    return [*lines, *_tried_lines(advice.tried)]


def _tried_lines(tried: Sequence[Tried] | None) -> list[str]:
    """What came of those that were tried here."""
    if tried is None:
        return []
    if not tried:
        return ["", "Tried here", "  nothing, for nothing pays"]
    first = tried[0]
    lines = ["", f"Tried here, {first.steps} steps of {first.seeds} seeds each, in turn with the run as it is"]
    for each in tried:
        lines.append(
            f"  {each.name}: told {each.told:+.1%} ± {each.told_error:.1%}, measured {each.gain:+.1%}{_within(each)}"
        )
        lines += _indented(_score_line(each))
    return lines


def _within(tried: Tried) -> str:
    return "" if tried.gain_within is None else f" ± {tried.gain_within:.1%}"


def _score_line(tried: Tried) -> str:
    if tried.delta is None:
        return "quality: not measured, for the run has no data.test, or no score of it"
    within = "" if tried.delta_within is None else f" ± {tried.delta_within:.4f}"
    return f"quality: {tried.score.upper()} {tried.delta:+.4f}{within} after these few steps"


def _error(base: JobPrice) -> str:
    apart = f", and by no less than {base.apart:.1%}, below which steps are not told apart" if base.apart else ""
    return f"the step may be off by {base.error:.0%}, and a gain by as much of itself{apart}"


def _switch_lines(base: JobPrice, advised: Advised, number: str) -> Iterator[str]:
    switch = advised.switch
    between = f", {_between(advised.gain, advised.gain_error)}" if advised.verdict in ("pays", "tie") else ""
    yield f"  {number}{switch.name}: {advised.why}{between}"
    if advised.price is not None and advised.verdict in ("pays", "tie", "memory"):
        yield from _indented(
            f"{_steps(base, advised.price)}; {_needs(base, advised.price)}",
            f"quality: {switch.quality}",
            *([f"needs: {switch.needs}"] if switch.needs else []),
            f"switch on: {switch.change}   (docs/{switch.page})",
            *([f"rests on: docs/{switch.rests}"] if switch.rests else []),
            *([f"a tie with {', '.join(advised.ties)}: intervals overlap"] if advised.ties else []),
        )


def _needs(base: JobPrice, price: JobPrice) -> str:
    """Memory, devices and money, before and after."""
    told = [f"fullest device {format_size(base.memory_bytes)} -> {format_size(price.memory_bytes)}"]
    if base.devices != price.devices:
        told.append(f"devices {base.devices} -> {price.devices}")
    if base.dollars is not None and price.dollars is not None:
        told.append(f"${base.dollars:,.2f} -> ${price.dollars:,.2f} a billion samples")
    return "; ".join(told)


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
