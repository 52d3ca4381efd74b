"""Changes of a plan by hand: moved pieces, a changed problem, and the draft that holds them step by step.

A draft is a list of steps and how many of them are done; the steps behind those can be done again. It is kept with its
plan, so that a browser, a server or a machine may end at any time, and work goes on where it was.
"""

import secrets

from recsmith._types import noun
from recsmith.errors import check_rules

MOST_MOVES = 10_000


@noun
class ProblemChanges:
    """What differs from a workload and a cluster; what is left out stays as it is.

    batch_size: samples per device and step. hbm_bytes: memory of each device. reserve_bytes: of it, kept free.
    hosts, local_world_size: of the cluster. Bandwidths: bytes per second per device, one direction.
    """

    batch_size: int | None = None
    optimizer: str | None = None
    hbm_bytes: int | None = None
    reserve_bytes: int | None = None
    hosts: int | None = None
    local_world_size: int | None = None
    intra_host_bandwidth: float | None = None
    inter_host_bandwidth: float | None = None


@noun
class PieceMove:
    """A column piece of a table goes to another device, or with its whole host to the host of that device.

    piece: 0 for the first, in order of the plan's widths.
    """

    table: str
    piece: int = 0
    rank: int


@noun
class PlanEdit:
    """Moves of pieces of a plan, one after the other, and changes of its problem."""

    moves: tuple[PieceMove, ...] = ()
    changes: ProblemChanges | None = None
    name: str = ""

    def __post_init__(self) -> None:
        many = f"an edit of {len(self.moves):,} moves is too long; send at most {MOST_MOVES:,}"
        check_rules(many if len(self.moves) > MOST_MOVES else None)


@noun
class EditStep:
    """One step of a draft: a piece that moves, or all changes of the problem from then on."""

    move: PieceMove | None = None
    changes: ProblemChanges | None = None

    def __post_init__(self) -> None:
        both = (self.move is None) == (self.changes is None)
        check_rules("a step of a draft is a move or changes; give one of the two" if both else None)


@noun
class HandDraft:
    """Changes of a plan by hand that are no plan yet.

    steps: in order. done: how many of them hold; those behind were taken back. version: another one with every change,
    and empty where there is no draft. plan: digest of the plan that it changes.
    """

    steps: tuple[EditStep, ...] = ()
    done: int = 0
    version: str = ""
    plan: str = ""

    def __post_init__(self) -> None:
        _check_steps(len(self.steps), self.done)


@noun
class DraftChange:
    """A draft as it shall be. base: the version that was changed; empty where there was none."""

    steps: tuple[EditStep, ...] = ()
    done: int = 0
    base: str = ""

    def __post_init__(self) -> None:
        _check_steps(len(self.steps), self.done)


def _check_steps(steps: int, done: int) -> None:
    check_rules(
        f"a draft of {steps:,} steps is too long; keep it as a plan" if steps > MOST_MOVES else None,
        None if 0 <= done <= steps else f"{done} steps are done, and the draft has {steps}; give at most these",
    )


def next_draft(change: DraftChange, plan: str) -> HandDraft:
    """The draft of a change, with a version of its own. plan: digest of the plan that it changes."""
    if not change.steps:
        return HandDraft()
    return HandDraft(steps=change.steps, done=change.done, version=secrets.token_hex(8), plan=plan)
