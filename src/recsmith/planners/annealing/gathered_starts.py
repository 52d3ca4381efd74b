"""First plans in which pieces that cover whole hosts are gathered on few hosts, and large column pieces on the others.

A table_row_wise table takes the same seconds of every rank of a host. Spread evenly over the hosts, such tables leave
no rank enough room for a large piece of a single rank. Then all large tables must cover hosts too, which costs more. If
some hosts are full of these tables, the ranks of the others have room. Annealing seldom finds such plans by itself: on
the way, each piece moved to another host makes all ranks of that host slower.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.bounds import SelectionLimits
from recsmith.bounds.first import always
from recsmith.bounds.relaxation import Relaxation
from recsmith.planners.annealing.starts import SELECTED_LIMITS, Start
from recsmith.planners.search.device_state import Assignment, DeviceState
from recsmith.planners.search.placement import allowed_targets, placed_rest
from recsmith.problems import NO_PIECE
from recsmith.sharding import Span

FULL = (1.0, 0.8)  # shares of the step up to which hosts are filled, world pieces included; 0.6 gained no more
LIMITS = SELECTED_LIMITS[:3]  # times the step: limits on the largest piece's seconds, under which tables select


def gathered_starts(
    devices: DeviceState, relaxation: Relaxation, selections: Sequence[Ints], total_s: float,
    keep_on: Callable[[], bool] = always,
) -> list[Start]:  # fmt: skip
    """Gathered first plans, best first, without repetitions; none on a single host.

    selections: the fusion group of each table (T,) to begin with. total_s: seconds of the best plan known.
    keep_on: asked before each placement whether there is time for it.
    """
    found: dict[bytes, Start] = {}
    for selection in selections if devices.hosts > 1 else ():
        groups = np.isin(np.arange(devices.evaluator.groups), selection)
        for choice in _choices(relaxation, selection, total_s):
            for full in FULL:
                if not keep_on():
                    break
                draft = _gathered(devices, choice, full * total_s)
                if draft is not None and (devices.span[draft.piece] == Span.HOST).any():
                    key = draft.option.tobytes() + draft.target.tobytes()
                    found.setdefault(key, Start(devices.total, groups, draft))
    return sorted(found.values(), key=lambda start: start.seconds)


def _choices(relaxation: Relaxation, selection: Ints, total_s: float) -> Iterator[Ints]:
    """The options that tables select (T,) within their groups, under limits on the largest piece."""
    options = relaxation.problem.options
    opened = relaxation.reopened(options.barred | (relaxation.option_group != selection[options.table]))
    for limit in LIMITS:
        choice = opened.choose(SelectionLimits(limit=limit * total_s)).option
        if (choice == NO_PIECE).any():
            return
        yield choice


def _gathered(devices: DeviceState, choice: Ints, full_s: float) -> Assignment | None:
    """Place the chosen options (T,), pieces of hosts first, each on the first host that it fills to `full_s` at most.

    If there is no such host, the least filled one gets the piece. All other pieces follow, longest first. Returns None
    if a piece finds no room.
    """
    devices.clear()
    draft = Assignment.of(devices.problem, choice)
    span, seconds = devices.span[draft.piece], devices.seconds[draft.piece]
    room: Floats = np.full(devices.hosts, full_s - float(seconds[span == Span.WORLD].sum()))
    of_hosts = np.flatnonzero(span == Span.HOST)
    for i in of_hosts[np.argsort(-seconds[of_hosts], kind="stable")].tolist():
        piece = int(draft.piece[i])
        allowed = devices.fits(piece) & allowed_targets(devices, draft, i)
        if not allowed.any():
            return None
        left = np.where(allowed, room, -np.inf)
        host = int((left >= seconds[i]).argmax() if (left >= seconds[i]).any() else left.argmax())
        devices.place(piece, host)
        room[host] -= seconds[i]
        draft.target[i] = host
    return placed_rest(devices, draft)
