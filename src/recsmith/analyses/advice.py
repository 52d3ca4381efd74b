"""Which of what a job could switch on pays: every switch is put through one price of the whole job. Without torch.

The job is priced as it is, and then with each switch alone. Switches that pay are joined from the largest gain on, and
priced anew each time, so that a gain which another switch has taken already counts nothing. A gain is a share of the
device seconds that a sample takes. How much memory, and what quality a switch may cost, stands beside it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, get_args

from recsmith._types import noun
from recsmith.errors import RecSmithError

LEAST_GAIN = 0.02  # of a sample's device seconds: less is not worth a change of a job
LEAST_MEMORY = 0.10  # of the fullest device
MOST_TOGETHER = 4  # switches that are joined: more at once can hardly be judged in a job
Verdict = Literal["pays", "tie", "memory", "no", "cannot"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@noun
class Switch:
    """Something that a job could switch on.

    name: in the words of the docs. change: the line that switches it on. settings: of a run, as `recsmith train --set`
    takes them; () where it is no change of a run. quality: what it may cost in quality, and how that was measured;
    'exact' where the job computes the same. page: of docs/, where it is described and measured.
    """

    name: str
    change: str
    settings: tuple[str, ...] = ()
    quality: str
    page: str


@noun
class JobPrice:
    """What a step of a job takes.

    step_s: seconds. samples: of a device and a step. memory_bytes: of the device that holds the most. error: how far
    step_s may be off, as a share of it. apart: shares of a step below which two prices cannot be told apart.
    """

    step_s: float
    samples: int
    memory_bytes: int
    error: float
    apart: float = 0.0

    @property
    def sample_s(self) -> float:
        """Device seconds of a sample."""
        return self.step_s / self.samples


@noun
class Advised:
    """What is said of a switch.

    verdict: pays; tie (the gain is smaller than what the price can tell apart); memory (no gain, and memory is freed);
    no; cannot (it cannot be had here). price: of the job with it, None where it cannot be had. gain: the share of a
    sample's device seconds that it saves, off by up to gain_error. why: the verdict in a sentence.
    """

    switch: Switch
    verdict: Verdict
    why: str
    price: JobPrice | None = None
    gain: float = 0.0
    gain_error: float = 0.0


@noun
class Advice:
    """Every switch of a job that was tried, the best first, and which of them go together.

    base: the job as it is. about: lines that say what was priced, and how. together: names of the switches that were
    joined, in the order in which they should be tried. joined: the job with all of them.
    """

    base: JobPrice
    about: tuple[str, ...]
    switches: tuple[Advised, ...]
    together: tuple[str, ...]
    joined: JobPrice

    @property
    def gain(self) -> float:
        """The share of a sample's device seconds that all joined switches save."""
        return gain_of(self.base, self.joined)

    @property
    def verdict(self) -> str:
        """The advice in a sentence."""
        paying = [each.switch.name for each in self.switches if each.verdict == "pays"]
        if not paying:
            return "nothing that was tried makes this job faster by more than can be told"
        first = f"{paying[0]} first"
        if len(self.together) < 2:
            return f"{first}: it saves {self.gain:.0%} of the device time of a sample"
        return f"{first}; {' and '.join(self.together)} together save {self.gain:.0%} of the device time of a sample"


Pricing = Callable[[Sequence[Switch]], JobPrice]


def gain_of(before: JobPrice, after: JobPrice) -> float:
    """The share of a sample's device seconds that is saved; below 0 where more are spent."""
    return 1 - after.sample_s / before.sample_s if before.sample_s else 0.0


def error_of_gain(gain: float, price: JobPrice) -> float:
    """How far a gain may be off: by the step's error as a share of it, and by no less than what prices tell apart."""
    return max(abs(gain) * price.error, price.apart)


def advise_by(
    price: Pricing, switches: Iterable[Switch], about: Sequence[str], on_switch: Callable[[str], object] | None = None
) -> Advice:
    """Advice on a job whose price with any switches a function tells.

    Args:
        price: of the job with switches; raises RecSmithError where they cannot be had.
        switches: that are tried, from the one that costs least to try.
        about: lines that say what is priced.
        on_switch: hears the name of each switch before it is priced.

    Raises:
        RecSmithError: the job as it is has no price.
    """
    base = price(())
    tried: list[Advised] = []
    for switch in switches:
        if on_switch is not None:
            on_switch(switch.name)
        tried.append(_tried(price, base, switch))
    ranked = [each for verdict in VERDICTS for each in _ranked([one for one in tried if one.verdict == verdict])]
    together, joined = _joined(price, base, [each for each in ranked if each.verdict == "pays"])
    return Advice(
        base=base, about=tuple(about), switches=tuple(ranked), together=tuple(each.name for each in together),
        joined=joined,
    )  # fmt: skip


def _tried(price: Pricing, base: JobPrice, switch: Switch) -> Advised:
    """What a switch alone does to a job."""
    try:
        found = price((switch,))
    except RecSmithError as error:
        return Advised(switch=switch, verdict="cannot", why=str(error))
    gain = gain_of(base, found)
    verdict, why = _verdict(base, found, gain)
    return Advised(
        switch=switch, verdict=verdict, why=why, price=found, gain=gain, gain_error=error_of_gain(gain, found)
    )  # fmt: skip


def _verdict(base: JobPrice, found: JobPrice, gain: float) -> tuple[Verdict, str]:
    freed = 1 - found.memory_bytes / base.memory_bytes if base.memory_bytes else 0.0
    if gain >= max(LEAST_GAIN, found.apart):
        return "pays", f"saves {gain:.1%} of the device time of a sample"
    if gain >= LEAST_GAIN:
        return "tie", f"saves {gain:.1%}, and steps that differ by less than {found.apart:.1%} cannot be told apart"
    if freed >= LEAST_MEMORY:
        more = "in the same time" if gain > -LEAST_GAIN else f"and takes {-gain:.1%} more device time"
        return "memory", f"frees {freed:.0%} of the fullest device, {more}"
    if gain < -LEAST_GAIN:
        return "no", f"takes {-gain:.1%} more device time"
    return "no", f"changes the device time of a sample by less than {LEAST_GAIN:.0%}"


def _ranked(tried: Sequence[Advised]) -> list[Advised]:
    """From the largest gain on; of gains whose intervals overlap with that, the one that costs least to try."""
    left, ranked = list(tried), list[Advised]()
    while left:
        best = max(left, key=lambda each: each.gain)
        least = best.gain - best.gain_error
        ranked.append(next(each for each in left if each.gain + each.gain_error >= least))
        left.remove(ranked[-1])
    return ranked


def _joined(price: Pricing, base: JobPrice, paying: Sequence[Advised]) -> tuple[list[Switch], JobPrice]:
    """The switches that are worth it beside those before them, and the price of the job with all of them."""
    chosen: list[Switch] = []
    best = base
    for advised in paying:
        if len(chosen) == MOST_TOGETHER or _same_setting(advised.switch, chosen):
            continue
        try:
            found = advised.price if not chosen else price((*chosen, advised.switch))
        except RecSmithError:  # they do not go together
            continue
        if found is not None and gain_of(best, found) >= LEAST_GAIN:
            chosen.append(advised.switch)
            best = found
    return chosen, best


def _same_setting(switch: Switch, chosen: Sequence[Switch]) -> bool:
    """Whether a switch changes a setting that one before has changed."""
    keys = {setting.partition("=")[0] for each in chosen for setting in each.settings}
    return any(setting.partition("=")[0] in keys for setting in switch.settings)
