"""Changes of a plan by hand: moved pieces, a changed problem, and the draft that holds them step by step.

A draft is a list of steps and the number of them that are done; later steps were undone and can be redone. It is kept
with its plan, so work continues where it was even if the browser, the server or the machine ends.
"""

import secrets

from recsmith._types import noun
from recsmith.errors import check_rules

MOST_MOVES = 10_000


@noun
class ProblemChanges:
    """Changes to a workload and a cluster; fields that are None stay unchanged.

    batch_size: samples per device and step. hbm_bytes: memory of each device. reserve_bytes: the part of it kept free.
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
    """Moves a column piece of a table to another device; if a host holds the piece, to that device's host.

    piece: index in the order of the plan's widths; 0 is the first.
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
    """One step of a draft: either a piece that moves, or all changes of the problem from this step on."""

    move: PieceMove | None = None
    changes: ProblemChanges | None = None

    def __post_init__(self) -> None:
        both = (self.move is None) == (self.changes is None)
        check_rules("a step of a draft is a move or changes; give one of the two" if both else None)


@noun
class HandDraft:
    """Changes of a plan by hand that are not kept as a plan yet.

    steps: in order. done: number of steps in effect; later ones were undone. version: new after every change, and empty
    if there is no draft. plan: digest of the plan that it changes.
    """

    steps: tuple[EditStep, ...] = ()
    done: int = 0
    version: str = ""
    plan: str = ""

    def __post_init__(self) -> None:
        _check_steps(len(self.steps), self.done)


@noun
class DraftChange:
    """A new state of a draft. base: the version that was changed; empty if there was none."""

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
    """The draft after a change, with a new version. plan: digest of the plan that it changes."""
    if not change.steps:
        return HandDraft()
    return HandDraft(steps=change.steps, done=change.done, version=secrets.token_hex(8), plan=plan)
