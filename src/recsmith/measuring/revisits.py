"""Which case a place of a run measures: new cases, and at every tenth place one that was measured before.

Two samples of one case show the noise of a run. They lie half of the run apart, so they hold its drift too.
"""

EVERY = 10  # places: nine of new cases, then a revisit. Trade-off: more revisits know the noise better, cost new cases


def case_of(place: int) -> tuple[int, int]:
    """(number of the case, how often it was sampled before) of a place of the run, counted from 0.

    Every tenth place is a case from half as far into the run.
    """
    ten, digit = divmod(place, EVERY)
    if digit < EVERY - 1:
        return ten * (EVERY - 1) + digit, 0
    return ten // 2 * (EVERY - 1) + ten % 2, 1
