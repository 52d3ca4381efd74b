"""Memory over the phases of a step: a table with bars, which tables are stashed, and the same as plain data."""

from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from recsmith.analyses.step_memory import StepMemory
from recsmith.files import Raw
from recsmith.plans import Plan
from recsmith.problems.memory_schedule import KINDS, PHASES
from recsmith.problems.stashing import StashedBytes
from recsmith.reports.layout import Grid, grid, line
from recsmith.units import counted, format_size, format_time

SCHEMA = "recsmith/step-memory/1"
NO_BREAK = "\u00a0"
MOSTLY = 0.5  # share of the step from which exposed copies are called too long
MOST_NAMED = 4  # stashed tables that are named
BAR = 10  # characters of a bar that stands for the whole device
COLUMNS = 3  # kinds of bytes with a column of their own; more would not fit into 80 characters


Choices = Sequence[tuple[str, str, StepMemory]]  # (what the dense layers could do, its cost, the memory then)


def step_memory_report(memory: StepMemory, choices: Choices = ()) -> RenderableType:
    """What the fullest rank holds in each phase, and which phase is the fullest on how many ranks."""
    plan, schedule = memory.plan, memory.schedule
    rank = schedule.fullest
    peak, room = int(schedule.peak[rank]), int(schedule.capacity[rank])
    verdict = f"fits, {format_size(room - peak)} are left" if peak <= room else f"{format_size(peak - room)} too much"
    return Group(
        line("plan", f"{counted(len(plan.placements), 'table')} on {memory.stated.describe()}"),
        line("peak", f"rank {rank} in phase '{schedule.when(rank)}': {format_size(peak)} of {format_size(room)}: "
                     f"{verdict}"),
        line("dense", f"{memory.source}"),
        *([line("stash", stash_words(memory.rests, plan))]
          if memory.rests else []),
        Text(),
        _phases_grid(memory, rank),
        *_peaks(memory),
        *([Text(), _choices_grid(memory, choices)] if choices else []),
    )  # fmt: skip


def _choices_grid(memory: StepMemory, choices: Choices) -> Grid:
    """A row for each option of the dense layers: the fullest rank's peak then, the bytes freed, and the cost."""
    made = grid(left=("what dense layers could do", "costs"), right=("peak", "frees"))
    peak = int(memory.schedule.peak[memory.schedule.fullest])
    for name, costs, then in choices:
        now = int(then.schedule.peak[then.schedule.fullest])
        made.add_row(
            name, costs, format_size(now).replace(" ", NO_BREAK), format_size(peak - now).replace(" ", NO_BREAK)
        )
    return made


def _phases_grid(memory: StepMemory, rank: int) -> Grid:
    """A row for each phase: bytes by the largest kinds, and a bar for its share of the device."""
    schedule = memory.schedule
    most = schedule.bytes[:, :, rank].max(axis=0)
    used = sorted(sorted(range(len(KINDS)), key=lambda k: -int(most[k]))[:COLUMNS])
    made = grid(left=("phase", "of the device"), right=("together", *(KINDS[k] for k in used), "the rest"))
    room = int(schedule.capacity[rank])
    for p, phase in enumerate(PHASES):
        total = int(schedule.totals[p, rank])
        own = [int(schedule.bytes[p, k, rank]) for k in used]
        cells = [format_size(each) if each else "" for each in (*own, total - sum(own))]
        full = "█" * min(BAR, round(BAR * total / room)) or "▏"
        bar = f"{full:<{BAR}} {total / room:>4.0%}".replace(" ", NO_BREAK)
        made.add_row(phase.replace(" ", NO_BREAK), bar, format_size(total).replace(" ", NO_BREAK), *cells)
    return made


def _peaks(memory: StepMemory) -> Iterator[RenderableType]:
    """How many ranks each phase is the fullest of; nothing if it is the same phase on all ranks."""
    phases, counts = np.unique(memory.schedule.totals.argmax(axis=0), return_counts=True)
    if len(phases) > 1:
        parts = [f"'{PHASES[p]}' of {counted(int(n), 'rank')}" for p, n in zip(phases, counts, strict=True)]
        yield line("", f"fullest phase: {', '.join(parts)}")


def stash_words(rests: StashedBytes, plan: Plan) -> str:
    """Which tables wait in host memory during the dense layers, how evenly over ranks, and how long copies take."""
    names = [each.table for each in plan.placements if each.stash is not None]
    rest, on_cpu = "rests" if len(names) == 1 else "rest", plan.cluster.device.kind == "cpu"
    place = "a file" if on_cpu else "host memory"
    named = ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
    words = (
        f"{counted(len(names), 'table')} ({named}) {rest} in {place} while dense layers work: "
        f"{format_size(rests.most)} on rank {rests.rank}, which has most"
    )
    words += f", {rests.most / rests.mean:.2f} times the mean" if rests.mean else ""
    if rests.copy_s is None and on_cpu:
        return f"{words}; `recsmith train RUN --dry-run` tells how long copies take"
    if rests.copy_s is None:
        return f"{words}; the cluster does not say how fast the link to its host is"
    words += f"; a copy takes {format_time(rests.copy_s)} each way"
    if rests.exposed_s is None:
        return (
            f"{words}, hidden where dense forward and backward take {format_time(rests.hidden_from_s or 0.0)} together "
            "(--dense-time states theirs)"
        )
    if rests.exposed_s == 0:
        return f"{words}, all hidden"
    words += f", of which dense layers leave {format_time(rests.exposed_s)} of a step exposed"
    share = rests.exposed_s / (plan.cost.step_s + rests.exposed_s)
    if share < MOSTLY:
        return words
    return f"{words}: {share:.1%} of the step, so resting hardly pays; more devices or smaller batches copy less"


def step_memory_to_raw(memory: StepMemory, choices: Choices = ()) -> Raw:
    """As plain data: bytes by phase, kind and rank, peaks, stashed tables, and options of the dense layers."""
    schedule, rests = memory.schedule, memory.rests
    return {
        "schema": SCHEMA,
        "digest": memory.plan.digest,
        "phases": list(PHASES),
        "kinds": list(KINDS),
        "bytes": schedule.bytes.tolist(),
        "capacity_bytes": schedule.capacity.tolist(),
        "peak_bytes": schedule.peak.tolist(),
        "peak_phase": [schedule.when(rank) for rank in range(len(schedule.capacity))],
        "dense": memory.source,
        "stash": None if rests is None else {
            "weights_bytes": list(rests.weights), "state_bytes": list(rests.state), "copy_s": rests.copy_s,
            "exposed_s": rests.exposed_s,
        },
        "choices": [
            {"name": name, "costs": costs, "peak_bytes": then.schedule.peak.tolist()} for name, costs, then in choices
        ],
    }  # fmt: skip
