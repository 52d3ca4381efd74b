"""When a change pays: one least gain, and one wording, for advice and for all that a run leaves to `auto`.

A gain is the share of what there is to be less of that a change saves, such as of a step. Both ask the same prices, so
that a run never leaves out what advice names, nor takes what advice leaves out.
"""

LEAST_GAIN = 0.02  # of what there is to be less of: less is not worth a change of a job
ROUNDED = 0.0005  # of a share, which is told in tenths of a per cent


def gain_of(before: float, after: float) -> float:
    """The share that is saved; below 0 where more is needed."""
    return 1 - after / before if before else 0.0


def pays(gain: float) -> bool:
    """Whether a gain is worth a change."""
    return gain >= LEAST_GAIN


def said_of(gain: float, what: str) -> str:
    """A gain in words, and whether it is enough. what: there is to be less of."""
    if gain <= -1:
        return f"takes {1 - gain:.3g} times {what}"
    if gain < -ROUNDED:
        return f"takes {-gain:.1%} more of {what}"
    saves = f"saves {max(gain, 0.0):.1%} of {what}"
    return saves if pays(gain) else f"{saves}, less than the {LEAST_GAIN:.0%} from which on a change pays"
