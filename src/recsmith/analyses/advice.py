"""Which of what a job could switch on pays: every switch is put through one price of the whole job. Without torch.

The job is priced as it is, and then with each switch alone; where a price can be made better by a search, the few that
look best are. Switches that pay are joined from the largest gain on, and priced anew each time, so that a gain which
another switch has taken already counts nothing. A gain is a share of what the job is to have less of (aims.py). How
much memory, and what quality a switch may cost, stands beside it.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal, get_args

from recsmith._types import noun
from recsmith.analyses.aims import NAMED, STEP, Aim, JobPrice
from recsmith.analyses.paying import LEAST_GAIN, pays, said_of
from recsmith.errors import RecSmithError

LEAST_MEMORY = 0.10  # of the fullest device
MOST_TOGETHER = 4  # switches that are joined: more at once can hardly be judged in a job
MOST_SEARCHED, NEAR = 2, -0.05  # switches that are searched, and gains before a search from which on that may help
Verdict = Literal["pays", "tie", "memory", "no", "cannot"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@noun
class Switch:
    """Something that a job could switch on.

    name: in the words of the docs. change: the line that switches it on. settings: of a run, as `recsmith train --set`
    takes them; () where it is no change of a run. quality: what it may cost in quality, and how that was measured;
    'exact' where the job computes the same. page: of docs/, where it is described. rests: the page of docs/ with the
    table that its gain was measured in; '' where nobody did. needs: what it needs beside; '' for nothing. of: what
    it is a choice of, such as 'devices', where only one can be made; '' for nothing.
    """

    name: str
    change: str
    settings: tuple[str, ...] = ()
    quality: str
    page: str
    rests: str = ""
    needs: str = ""
    of: str = ""


@noun
class Advised:
    """What is said of a switch.

    verdict: pays; tie (the gain is smaller than what the price can tell apart); memory (no gain, and memory is freed);
    no; cannot (it cannot be had here, or breaks a limit). price: of the job with it, None where it cannot be had. gain:
    the share that it saves of what there is to be less of, off by up to gain_error. why: the verdict in a sentence.
    ties: names of others that pay, or may, whose gains cannot be told from this one, and which cost more to try.
    """

    switch: Switch
    verdict: Verdict
    why: str
    price: JobPrice | None = None
    gain: float = 0.0
    gain_error: float = 0.0
    ties: tuple[str, ...] = ()


@noun
class Tried:
    """How a switch did where it was tried for real, beside what was told.

    gain: the mean over seeds of the share of a sample's time that it saved, with half of its 95 % interval. score: by
    name, that was compared on test data; '' for none. delta: by how much it is higher, with half of its interval.
    """

    name: str
    told: float
    told_error: float
    gain: float
    gain_within: float | None
    score: str
    delta: float | None
    delta_within: float | None
    seeds: int
    steps: int


@noun
class Advice:
    """Every switch of a job that was tried, the best first, and which of them go together.

    base: the job as it is. about: lines that say what was priced, and how. together: names of the switches that were
    joined, in the order in which they should be tried. joined: the job with all of them. aim: what the job is to have
    less of. tried: how the first of them did for real; None where none was tried.
    """

    base: JobPrice
    about: tuple[str, ...]
    switches: tuple[Advised, ...]
    together: tuple[str, ...]
    joined: JobPrice
    aim: Aim = STEP
    tried: tuple[Tried, ...] | None = None

    @property
    def gain(self) -> float:
        """The share that all joined switches save."""
        return self.aim.gain(self.base, self.joined)

    @property
    def verdict(self) -> str:
        """The advice in a sentence."""
        paying = [each.switch.name for each in self.switches if each.verdict == "pays"]
        if not paying:
            return f"nothing that was tried saves {NAMED[self.aim.objective]} by more than can be told{self._may}"
        first = f"{paying[0]} first"
        if len(self.together) < 2:
            return f"{first}: it saves {self.gain:.0%} of {NAMED[self.aim.objective]}"
        return f"{first}; {' and '.join(self.together)} together save {self.gain:.0%} of {NAMED[self.aim.objective]}"

    @property
    def _may(self) -> str:
        """What may save something all the same, as the end of a sentence; '' where nothing may."""
        may = max((each for each in self.switches if each.verdict == "tie"), key=lambda each: each.gain, default=None)
        if may is None:
            return ""
        return f"; likeliest is {may.switch.name}, {may.gain:.0%} give or take {may.gain_error:.0%}"


Pricing = Callable[[Sequence[Switch]], JobPrice]


def advise_by(
    price: Pricing,
    switches: Iterable[Switch],
    about: Sequence[str],
    on_switch: Callable[[str], object] | None = None,
    *,
    aim: Aim = STEP,
    searched: Pricing | None = None,
    most_searched: int = MOST_SEARCHED,
) -> Advice:
    """Advice on a job whose price with any switches a function tells.

    Args:
        price: of the job with switches; raises RecSmithError where they cannot be had.
        switches: that are tried, from the one that costs least to try.
        about: lines that say what is priced.
        on_switch: hears the name of each switch before it is priced.
        aim: what the job is to have less of, and its limits.
        searched: a better price that takes longer, asked for the few switches that look best.
        most_searched: of them.

    Raises:
        RecSmithError: the job as it is has no price.
    """
    trial = _Trial(price, price(()), aim, searched)
    tried: list[Advised] = []
    for switch in switches:
        if on_switch is not None:
            on_switch(switch.name)
        tried.append(trial.tried(switch))
    tried = _searched(trial, tried, most_searched, on_switch)
    ranked = [each for verdict in VERDICTS for each in _ranked([one for one in tried if one.verdict == verdict])]
    together, joined = trial.joined(ranked)
    return Advice(
        base=trial.base, about=tuple(about), switches=_with_ties(ranked),
        together=tuple(each.name for each in together), joined=joined, aim=aim,
    )  # fmt: skip


def _searched(
    trial: "_Trial", tried: list[Advised], most: int, on_switch: Callable[[str], object] | None
) -> list[Advised]:
    """The same, with better prices of the few whose gain may be worth it."""
    if trial.searched is None:
        return tried
    near = sorted((each for each in tried if each.price is not None and each.gain >= NEAR), key=lambda each: -each.gain)
    for each in near[:most]:
        if on_switch is not None:
            on_switch(each.switch.name)
        with suppress(RecSmithError):  # the price that there is stays where a search cannot begin from it
            tried[tried.index(each)] = trial.judged(each.switch, trial.searched((each.switch,)))
    return tried


class _Trial:
    """A job as it is, and what switches do to it."""

    def __init__(self, price: Pricing, base: JobPrice, aim: Aim, searched: Pricing | None) -> None:
        self.price, self.base, self.aim, self.searched = price, base, aim, searched

    def tried(self, switch: Switch) -> Advised:
        """What a switch alone does."""
        try:
            found = self.price((switch,))
        except RecSmithError as error:
            return Advised(switch=switch, verdict="cannot", why=str(error))
        return self.judged(switch, found)

    def judged(self, switch: Switch, found: JobPrice) -> Advised:
        """What is said of a switch with this price."""
        gain = self.aim.gain(self.base, found)
        verdict, why = self._verdict(found, gain)
        error = self.aim.error(gain, found)
        return Advised(switch=switch, verdict=verdict, why=why, price=found, gain=gain, gain_error=error)

    def _verdict(self, found: JobPrice, gain: float) -> tuple[Verdict, str]:
        what, apart = NAMED[self.aim.objective], self.aim.error(0.0, found)
        freed = 1 - found.memory_bytes / self.base.memory_bytes if self.base.memory_bytes else 0.0
        if over := self.aim.over(found):
            return "cannot", over
        if pays(gain) and gain >= apart:
            return "pays", said_of(gain, what)
        if pays(gain):
            return "tie", f"saves {gain:.1%}, and steps that differ by less than {apart:.1%} cannot be told apart"
        if freed >= LEAST_MEMORY:
            more = "in the same time" if gain > -LEAST_GAIN else f"and takes {-gain:.1%} more of {what}"
            return "memory", f"frees {freed:.0%} of the fullest device, {more}"
        return "no", said_of(gain, what)

    def joined(self, ranked: Sequence[Advised]) -> tuple[list[Switch], JobPrice]:
        """The switches that are worth it beside those before them, and the price of the job with all of them.

        One that alone breaks a limit comes last: beside others it may keep it.
        """
        paying = [each for each in ranked if each.verdict == "pays"]
        paying += [each for each in ranked if each.verdict == "cannot" and pays(each.gain)]
        chosen, best = list[Switch](), self.base
        for advised in paying:
            if len(chosen) == MOST_TOGETHER or _same_setting(advised.switch, chosen):
                continue
            found = advised.price if not chosen else self._beside(chosen, best, advised.switch)
            if found is not None and pays(self.aim.gain(best, found)) and not self.aim.over(found):
                chosen.append(advised.switch)
                best = found
        return chosen, best

    def _beside(self, chosen: Sequence[Switch], best: JobPrice, switch: Switch) -> JobPrice | None:
        """The price with one more switch, after a search where that may help; None where they do not go together."""
        switches = (*chosen, switch)
        try:
            found = self.price(switches)
        except RecSmithError:
            return None
        if self.searched is not None and self.aim.gain(best, found) >= NEAR:
            with suppress(RecSmithError):
                return self.searched(switches)
        return found


def _ranked(tried: Sequence[Advised]) -> list[Advised]:
    """From the largest gain on; of gains whose intervals overlap with that, the one that costs least to try."""
    left, ranked = list(tried), list[Advised]()
    while left:
        best = max(left, key=lambda each: each.gain)
        least = best.gain - best.gain_error
        ranked.append(next(each for each in left if each.gain + each.gain_error >= least))
        left.remove(ranked[-1])
    return ranked


def _with_ties(ranked: Sequence[Advised]) -> tuple[Advised, ...]:
    """The same, each with those after it that pay, or may, and whose intervals overlap with its own."""
    some = [each for each in ranked if each.verdict in ("pays", "tie")]

    def ties(place: int) -> tuple[str, ...]:
        own = some[place]
        return tuple(
            other.switch.name
            for other in some[place + 1 :]
            if abs(own.gain - other.gain) <= own.gain_error + other.gain_error
        )

    found = {each.switch.name: ties(place) for place, each in enumerate(some)}
    return tuple(replace(each, ties=found.get(each.switch.name, ())) for each in ranked)


def _same_setting(switch: Switch, chosen: Sequence[Switch]) -> bool:
    """Whether a switch changes a setting that one before has changed, or chooses anew what that has chosen."""
    if switch.of and any(switch.of == each.of for each in chosen):
        return True
    keys = {setting.partition("=")[0] for each in chosen for setting in each.settings}
    return any(setting.partition("=")[0] in keys for setting in switch.settings)
