"""Which of what a job could switch on pays: every switch is put through one price of the whole job. Without torch.

The job is priced as it is, and then with each switch alone. Switches that pay are joined from the largest gain on, and
priced anew each time, so that a gain which another switch has taken already counts nothing. A gain is a share of what
the job is to have less of (aims.py). How much memory, and what quality a switch may cost, stands beside it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

from recsmith._types import noun
from recsmith.analyses.aims import NAMED, STEP, Aim, JobPrice
from recsmith.analyses.paying import LEAST_GAIN, pays, said_of
from recsmith.errors import RecSmithError

LEAST_MEMORY = 0.10  # of the fullest device
MOST_TOGETHER = 4  # switches that are joined: more at once can hardly be judged in a job
Verdict = Literal["pays", "tie", "memory", "no", "cannot"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@noun
class Switch:
    """Something that a job could switch on.

    name: in the words of the docs. change: the line that switches it on. settings: of a run, as `recsmith train --set`
    takes them; () where it is no change of a run. quality: what it may cost in quality, and how that was measured;
    'exact' where the job computes the same. page: of docs/, where it is described. rests: the page of docs/ with the
    table that its gain was measured in; '' where nobody did. needs: what it needs beside; '' for nothing. of: what
    it is a choice of, such as 'devices', where only one can be made; '' for nothing. edits: what it changes of tables
    on a cluster, as data: keys of their file and options of `recsmith plan`.
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
    """What is said of a switch.

    verdict: pays; tie (the gain is smaller than what the price can tell apart); memory (no gain, and memory is freed);
    no; cannot (it cannot be had here, or breaks a limit). price: of the job with it, None where it cannot be had. gain:
    the share that it saves of what there is to be less of, off by up to gain_error. why: the verdict in a sentence.
    ties: names of others that pay, or may, whose gains cannot be told from this one, and which cost more to try.
    beside: the job that it is compared with, where that is not the job as it is: a switch that makes a new plan is told
    beyond what a new plan alone gains.
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
        """That the job as it is breaks a limit, and what keeps it; '' where it breaks none."""
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
        """What may save something all the same, as the end of a sentence; '' where nothing may."""
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
    """Advice on a job whose price with any switches a function tells.

    Args:
        price: of the job with switches; raises RecSmithError where they cannot be had.
        switches: that are tried, from the one that costs least to try.
        about: lines that say what is priced.
        on_switch: hears the name of each switch before it is priced.
        aim: what the job is to have less of, and its limits.
        beside: the job that a switch is compared with, once that has its price; None: the job as it is.

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
    """A job as it is, and what switches do to it."""

    def __init__(
        self, price: Pricing, base: JobPrice, aim: Aim, beside: Callable[[Switch], JobPrice | None] | None
    ) -> None:
        self.price, self.base, self.aim, self.beside = price, base, aim, beside

    def tried(self, switch: Switch) -> Advised:
        """What a switch alone does."""
        try:
            found = self.price((switch,))
        except RecSmithError as error:
            return Advised(switch=switch, verdict="cannot", why=str(error))
        return self.judged(switch, found, None if self.beside is None else self.beside(switch))

    def judged(self, switch: Switch, found: JobPrice, beside: JobPrice | None = None) -> Advised:
        """What is said of a switch with this price. beside: what it is compared with; None: the job as it is."""
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
        """The switches that are worth it beside those before them, and the price of the job with all of them.

        One that alone breaks a limit comes last: beside others it may keep it.
        """
        paying = [each for each in ranked if each.verdict == "pays" and pays(each.gain)]
        paying.sort(key=lambda each: each.beside is not None)  # what needs a new plan, after the new plan
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
        """Whether a job saves enough beside another and breaks no limit that this keeps, or keeps one it breaks."""
        over, before = (self.aim.over(each) or self.aim.close(each) for each in (found, best))
        if before and not over:
            return True
        return pays(self.aim.gain(best, found)) and (not over or (bool(before) and found.step_s <= best.step_s))

    def _beside(self, chosen: Sequence[Switch], switch: Switch) -> JobPrice | None:
        """The price with one more switch; None where they do not go together."""
        try:
            return self.price((*chosen, switch))
        except RecSmithError:
            return None


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
