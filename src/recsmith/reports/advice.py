"""Advice in words, the same on a terminal, on the page and in a plan's report; and as plain data."""

from collections.abc import Iterator, Sequence

from recsmith._types import noun
from recsmith.analyses.advice import Advice, Advised, Tried, Verdict
from recsmith.analyses.aims import JobPrice
from recsmith.files import Raw, encode
from recsmith.reports.layout import plain_line
from recsmith.units import format_size, format_time

SCHEMA = "recsmith/advice/1"
TITLES: dict[Verdict, str] = {
    "pays": "Pays",
    "tie": "May pay: gains below the error of the prediction",
    "memory": "Frees memory",
    "no": "Does not pay here",
    "cannot": "Cannot be had here",
}
WITH_FACTS = ("pays", "tie", "memory")  # verdicts of switches that somebody may want to turn on


@noun
class ToldSwitch:
    """A switch in words. why: its verdict in a sentence. facts: pairs of a label and its text."""

    name: str
    why: str
    facts: tuple[tuple[str, str], ...]


@noun
class ToldVerdict:
    """The switches with one verdict under its title, the best first."""

    verdict: Verdict
    title: str
    switches: tuple[ToldSwitch, ...]


@noun
class ToldAdvice:
    """Advice in words.

    sentence: what to do. about: what was priced and how, in sentences. error: how large the prediction error is.
    verdicts: the verdicts that some switch has. together: the switches that work together, and what they save; '' if
    fewer than two do.
    """

    sentence: str
    about: tuple[str, ...]
    error: str
    verdicts: tuple[ToldVerdict, ...]
    together: str


def told_advice(advice: Advice) -> ToldAdvice:
    """The advice in words."""
    return ToldAdvice(
        sentence=advice.verdict, about=advice.about, error=_error(advice), together=_together(advice),
        verdicts=tuple(
            ToldVerdict(verdict=verdict, title=title, switches=switches)
            for verdict, title in TITLES.items()
            if (switches := tuple(_told(advice, each) for each in advice.switches if each.verdict == verdict))
        ),
    )  # fmt: skip


def _told(advice: Advice, advised: Advised) -> ToldSwitch:
    has_interval = advised.gain_error and advised.gain > 0 and advised.verdict in ("pays", "tie")
    between = f", {_between(advised.gain, advised.gain_error)}" if has_interval else ""
    facts = tuple(_facts(advice, advised, advised.price)) if advised.price and advised.verdict in WITH_FACTS else ()
    return ToldSwitch(name=advised.switch.name, why=f"{advised.why}{between}", facts=facts)


def _facts(advice: Advice, advised: Advised, price: JobPrice) -> Iterator[tuple[str, str]]:
    switch, base = advised.switch, advised.beside or advice.base
    yield "step", f"{_steps(base, price)}; {_needs(base, price)}{', from a new plan on' if advised.beside else ''}"
    if close := advice.aim.close(price):
        yield "limit", close
    yield "quality", switch.quality
    if switch.needs:
        yield "needs", switch.needs
    yield "switch on", f"{switch.change}   (docs/{switch.page})"
    if switch.rests:
        yield "rests on", f"docs/{switch.rests}"
    if advised.ties:
        yield "a tie with", f"{', '.join(advised.ties)}, whose intervals overlap with this one's"


def _together(advice: Advice) -> str:
    if len(advice.together) < 2:
        return ""
    error = advice.aim.error(advice.gain, advice.base, advice.joined)
    within = f", {_between(advice.gain, error)}" if error else ""
    return (
        f"{', then '.join(advice.together)}: {_saved(advice.gain)}{within}; "
        f"step {_steps(advice.base, advice.joined)}; {_needs(advice.base, advice.joined)}"
    )


def _saved(gain: float) -> str:
    return f"saves {gain:z.1%}" if gain >= 0 else f"takes {-gain:.1%} more, for a limit"


def advice_lines(advice: Advice) -> list[str]:
    """The advice in a sentence, what it is based on, and every switch under its verdict."""
    words = told_advice(advice)
    lines = [plain_line("advice", words.sentence), *(plain_line("base", each) for each in words.about)]
    lines.append(plain_line("error", words.error))
    for group in words.verdicts:
        lines += ["", group.title]
        for number, switch in enumerate(group.switches, 1):
            rank = f"{number}. " if group.verdict == "pays" else ""
            lines.append(f"  {rank}{switch.name}: {switch.why}")
            lines += (f"       {word}: {text}" for word, text in switch.facts)
    if words.together:
        lines += ["", "Together", f"       {words.together}"]
    return [*lines, *_tried_lines(advice.tried)]


def _tried_lines(tried: Sequence[Tried] | None) -> list[str]:
    """What the changes that were tried on this machine gained."""
    if tried is None:
        return []
    if not tried:
        return ["", "Tried here", "  nothing, for nothing pays"]
    first = tried[0]
    lines = ["", f"Tried here, {first.steps} steps of {first.seeds} seeds each, in turn with the run as it is"]
    for each in tried:
        lines.append(
            f"  {each.name}: predicted {each.told:+z.1%} ± {each.told_error:.1%}, "
            f"measured {each.gain:+z.1%}{_within(each)}"
        )
        lines.append(f"       {_score_line(each)}")
    return lines


def _within(tried: Tried) -> str:
    return "" if tried.gain_within is None else f" ± {tried.gain_within:.1%}"


def _score_line(tried: Tried) -> str:
    if tried.delta is None:
        return "quality: not measured, for the run has no data.test, or no score of it"
    within = "" if tried.delta_within is None else f" ± {tried.delta_within:.4f}"
    return f"quality: {tried.score.upper()} {tried.delta:+.4f}{within} after these few steps"


def _error(advice: Advice) -> str:
    base = advice.base
    if advice.aim.objective == "memory":
        return f"the step may be off by {base.error:.0%}; memory is computed from shapes"
    apart = f", and by at least {base.apart:.1%} of a step" if base.apart else ""
    return f"the step may be off by {base.error:.0%}; a gain may be off by the same share of itself{apart}"


def _needs(base: JobPrice, price: JobPrice) -> str:
    """Memory, devices and cost, before and after."""
    parts = [f"fullest device {format_size(base.memory_bytes)} -> {format_size(price.memory_bytes)}"]
    if base.devices != price.devices:
        parts.append(f"devices {base.devices} -> {price.devices}")
    if base.dollars is not None and price.dollars is not None:
        parts.append(f"${base.dollars:,.2f} -> ${price.dollars:,.2f} a billion samples")
    return "; ".join(parts)


def _between(gain: float, error: float) -> str:
    return f"between {gain - error:z.1%} and {min(gain + error, 1.0):.1%}"  # a saving is at most 100 %


def _steps(before: JobPrice, after: JobPrice) -> str:
    work = "" if before.samples == after.samples else f" for {after.samples:,} samples in place of {before.samples:,}"
    return f"{format_time(before.step_s)} -> {format_time(after.step_s)}{work}"


def advice_to_raw(advice: Advice) -> Raw:
    """Advice as plain data, with schema recsmith/advice/1."""
    return {"schema": SCHEMA, "verdict": advice.verdict, "gain": advice.gain, **encode(advice)}
