"""Advises which switches of a job pay, by the predicted price of the whole job with each. Imports no torch.

The job is priced as it is, and then with each switch alone. Switches that pay are combined, the largest gain first, and
priced again each time, so that a saving which another switch has already made does not count twice. A gain is a
fraction of the objective, such as the step time (aims.py). Each switch also states its memory and its cost in quality.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

from recsmith._types import noun
from recsmith.analyses.aims import NAMED, STEP, Aim, JobPrice
from recsmith.analyses.paying import LEAST_GAIN, pays, said_of
from recsmith.errors import RecSmithError

LEAST_MEMORY = 0.10  # least fraction of the fullest device's memory that counts as freed
MOST_TOGETHER = 4  # most switches that are combined: the effects of more can hardly be told apart in a job
Verdict = Literal["pays", "tie", "memory", "no", "cannot"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@noun
class Switch:
    """A change that a job could switch on.

    name: its name, in the words of the docs. change: the line that switches it on. settings: settings of a run, as
    `recsmith train --set` takes them; () if it is no change of a run. quality: its possible cost in quality, and how
    that was measured; 'exact' if the job computes the same. page: the page of docs/ that describes it. rests: the page
    of docs/ with the table in which its gain was measured; '' if it was not measured. needs: further requirements; ''
    for none. of: the subject of the choice, such as 'devices', if only one switch of that subject can be chosen; ''
    otherwise. edits: its changes to tables and cluster as data: keys of their files and options of `recsmith plan`.
    """

    name: str
    change: str
    settings: tuple[str, ...] = ()
    quality: str
    page: str
    rests: str = ""
    needs: str = ""
    of: str = ""
    edits: Mapping[str, str | int] | None = None


@noun
class Advised:
    """The verdict on a switch.

    verdict: pays; tie (the gain is too small to tell the two prices apart); memory (no gain, but memory is freed);
    no; cannot (it is not possible here, or breaks a limit). price: price of the job with the switch; None if it
    is not possible. gain: the fraction of the objective that it saves, uncertain by gain_error. why: the verdict in a
    sentence. ties: names of later-ranked switches that pay, or may pay, with gains that prices cannot tell from this
    one. beside: the job that it is compared with, if not the job as it is: the gain of a switch that needs a new plan
    is the gain beyond that of a new plan alone.
    """

    switch: Switch
    verdict: Verdict
    why: str
    price: JobPrice | None = None
    gain: float = 0.0
    gain_error: float = 0.0
    ties: tuple[str, ...] = ()
    beside: JobPrice | None = None


@noun
class Tried:
    """The measured effect of a switch that was tried in real runs, next to the prediction.

    told, told_error: the predicted gain and its error. gain, gain_within: the mean over seeds of the fraction of a
    sample's time that it saved, and half of its 95 % interval. score: name of the score that was compared on test data;
    '' for none. delta, delta_within: by how much the score is higher with the switch, and half of its interval.
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
    """All switches of a job with their verdicts, the best first, and those that pay together.

    base: price of the job as it is. about: lines that say what was priced, and how. together: names of the combined
    switches, in the order in which they should be tried. joined: price of the job with all of these. aim: the objective
    and its limits. tried: measured effects of the first switches; None if none was tried in a run.
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
        """The fraction of the objective that all combined switches save."""
        return self.aim.gain(self.base, self.joined)

    @property
    def verdict(self) -> str:
        """The advice in a sentence."""
        what = NAMED[self.aim.objective]
        paying = [each.switch.name for each in self.switches if each.verdict == "pays"]
        if self.limit:
            return self.limit
        if not paying:
            return f"no change saves more of {what} than the error of the prediction{self._may}"
        of = "" if self.base.whole or self.aim.objective == "memory" else ", by embeddings alone"
        first = f"{paying[0]} first"
        if len(self.together) < 2:
            return f"{first}: it saves {self.gain:.0%} of {what}{of}"
        return f"{first}; {' and '.join(self.together)} together save {self.gain:.0%} of {what}{of}"

    @property
    def limit(self) -> str:
        """A sentence that the job as it is breaks a limit, and which switches keep it; '' if it breaks none."""
        broken = self.aim.over(self.base) or self.aim.close(self.base)
        if not broken:
            return ""
        found = [each for each in self.switches if each.price and self.aim.limit(self.base, each.price)]
        if self.together and self.aim.limit(self.base, self.joined):
            who = f"{' and '.join(self.together)}: {self.aim.limit(self.base, self.joined)}"
        elif found and found[0].price:
            who = f"{found[0].switch.name}: {self.aim.limit(self.base, found[0].price)}"
        else:
            near = [each for each in self.switches if each.price and not self.aim.over(each.price)]
            who = f"{near[0].switch.name} may keep it" if near else "nothing that was tried keeps it"
        return f"{broken}, as the job is; {who}"

    @property
    def _may(self) -> str:
        """The likeliest switch among the ties, as the end of a sentence; '' if there are no ties."""
        may = max((each for each in self.switches if each.verdict == "tie"), key=lambda each: each.gain, default=None)
        if may is None:
            return ""
        return f"; the likeliest is {may.switch.name}, {may.gain:.0%} ± {may.gain_error:.0%}"


Pricing = Callable[[Sequence[Switch]], JobPrice]


def advise_by(
    price: Pricing,
    switches: Iterable[Switch],
    about: Sequence[str],
    on_switch: Callable[[str], object] | None = None,
    *,
    aim: Aim = STEP,
    beside: Callable[[Switch], JobPrice | None] | None = None,
) -> Advice:
    """Advice on a job, given a function that prices the job with any switches.

    Args:
        price: returns the price of the job with these switches; raises RecSmithError if they are not possible.
        switches: the switches to try, from the one that is cheapest to try.
        about: lines that say what is priced.
        on_switch: called with the name of each switch before it is priced.
        aim: the objective and its limits.
        beside: returns the job that a switch is compared with, after the switch is priced; None stands for the job as
            it is.

    Raises:
        RecSmithError: the job as it is has no price.
    """
    trial = _Trial(price, price(()), aim, beside)
    tried: list[Advised] = []
    for switch in switches:
        if on_switch is not None:
            on_switch(switch.name)
        tried.append(trial.tried(switch))
    ranked = [each for verdict in VERDICTS for each in _ranked([one for one in tried if one.verdict == verdict])]
    if on_switch is not None:
        on_switch("what pays together")
    together, joined = trial.joined(ranked)
    return Advice(
        base=trial.base, about=tuple(about), switches=_with_ties(ranked),
        together=tuple(each.name for each in together), joined=joined, aim=aim,
    )  # fmt: skip


class _Trial:
    """Prices switches of a job and judges them against the job as it is."""

    def __init__(
        self, price: Pricing, base: JobPrice, aim: Aim, beside: Callable[[Switch], JobPrice | None] | None
    ) -> None:
        self.price, self.base, self.aim, self.beside = price, base, aim, beside

    def tried(self, switch: Switch) -> Advised:
        """The verdict on a switch alone."""
        try:
            found = self.price((switch,))
        except RecSmithError as error:
            return Advised(switch=switch, verdict="cannot", why=str(error))
        return self.judged(switch, found, None if self.beside is None else self.beside(switch))

    def judged(self, switch: Switch, found: JobPrice, beside: JobPrice | None = None) -> Advised:
        """The verdict on a switch with this price. beside: the job it is compared with; None for the job as it is."""
        before = beside or self.base
        gain = self.aim.gain(before, found)
        verdict, why = self._verdict(before, found, gain)
        why = f"{why}{', beyond a new plan' if beside else ''}"
        error = self.aim.error(gain, before, found)
        return Advised(
            switch=switch, verdict=verdict, why=why, price=found, gain=gain, gain_error=error, beside=beside
        )  # fmt: skip

    def _verdict(self, before: JobPrice, found: JobPrice, gain: float) -> tuple[Verdict, str]:
        what, apart = NAMED[self.aim.objective], self.aim.error(0.0, before, found)
        freed = 1 - found.memory_bytes / before.memory_bytes if before.memory_bytes else 0.0
        if over := self.aim.over(found):
            return "cannot", over
        sure = pays(gain) and gain >= apart
        if not sure and (kept := self.aim.limit(self.base, found)):
            return "pays", f"{kept}, and {said_of(gain, what)}"
        if sure:
            return "pays", said_of(gain, what)
        if pays(gain):
            return "tie", f"saves {gain:.1%}, less than the {apart:.1%} by which two predicted steps have to differ"
        if freed >= LEAST_MEMORY:
            more = "in the same time" if gain > -LEAST_GAIN else f"and {said_of(gain, what)}"
            return "memory", f"frees {freed:.0%} of the fullest device, {more}"
        return "no", said_of(gain, what)

    def joined(self, ranked: Sequence[Advised]) -> tuple[list[Switch], JobPrice]:
        """The switches that pay in combination with those before them, and the price of the job with all of them.

        Switches that break a limit alone are tried after those that pay: in combination they may keep it.
        """
        paying = [each for each in ranked if each.verdict == "pays" and pays(each.gain)]
        paying.sort(key=lambda each: each.beside is not None)  # switches that need a new plan follow the new plan
        paying += [each for each in ranked if each.verdict == "cannot" and pays(each.gain)]
        paying += [each for each in ranked if each.verdict == "pays" and not pays(each.gain)]  # they keep a limit
        chosen, best = list[Switch](), self.base
        for advised in paying:
            if len(chosen) == MOST_TOGETHER or _same_setting(advised.switch, chosen):
                continue
            found = advised.price if not chosen else self._beside(chosen, advised.switch)
            if found is not None and self._better(best, found):
                chosen.append(advised.switch)
                best = found
        return chosen, best

    def _better(self, best: JobPrice, found: JobPrice) -> bool:
        """Whether `found` saves enough over `best` and breaks no limit that it keeps, or keeps one that it breaks."""
        over, before = (self.aim.over(each) or self.aim.close(each) for each in (found, best))
        if before and not over:
            return True
        return pays(self.aim.gain(best, found)) and (not over or (bool(before) and found.step_s <= best.step_s))

    def _beside(self, chosen: Sequence[Switch], switch: Switch) -> JobPrice | None:
        """The price with one more switch; None if the switches cannot be combined."""
        try:
            return self.price((*chosen, switch))
        except RecSmithError:
            return None


def _ranked(tried: Sequence[Advised]) -> list[Advised]:
    """The switches by falling gain; of those whose intervals overlap with the largest, the cheapest to try is first."""
    left, ranked = list(tried), list[Advised]()
    while left:
        best = max(left, key=lambda each: each.gain)
        least = best.gain - best.gain_error
        ranked.append(next(each for each in left if each.gain + each.gain_error >= least))
        left.remove(ranked[-1])
    return ranked


def _with_ties(ranked: Sequence[Advised]) -> tuple[Advised, ...]:
    """The switches with their ties: later ones that pay or may pay, with intervals that overlap their own."""
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
    """Whether a switch changes a setting, or makes a choice, that a chosen switch has already made."""
    if switch.of and any(switch.of == each.of for each in chosen):
        return True
    keys = {setting.partition("=")[0] for each in chosen for setting in each.settings}
    return any(setting.partition("=")[0] in keys for setting in switch.settings)
