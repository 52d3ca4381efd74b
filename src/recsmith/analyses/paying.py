"""Decides when a change pays: one least gain and one wording, for advice and for all `auto` settings of a run.

A gain is the fraction of the objective, such as of the step time, that a change saves. Advice and runs use the same
prices, so that a run switches on exactly what advice would recommend.
"""

LEAST_GAIN = 0.02  # least fraction of the objective that a change must save to be worth it
ROUNDED = 0.0005  # half of the 0.1 % to which gains are rounded when printed


def gain_of(before: float, after: float) -> float:
    """The fraction that is saved, 1 - after / before; below 0 if more is needed."""
    return 1 - after / before if before else 0.0


def pays(gain: float) -> bool:
    """Whether a gain is large enough for a change to pay."""
    return gain >= LEAST_GAIN


def said_of(gain: float, what: str) -> str:
    """A gain in words, and whether it is enough. what: the objective, in words."""
    if gain <= -1:
        return f"takes {1 - gain:.3g} times {what}"
    if gain < -ROUNDED:
        return f"takes {-gain:.1%} more of {what}"
    saves = f"saves {max(gain, 0.0):.1%} of {what}"
    return saves if pays(gain) else f"{saves}, less than the {LEAST_GAIN:.0%} from which on a change pays"
