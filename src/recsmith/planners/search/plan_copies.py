"""Plans side by side, and what every device carries in each of them, while tables are taken out and put in.

Local search takes tables out of copies of its plan, so that it can try all their options in all copies together
(trials.py).

Legend: S plans, T tables, W ranks, H hosts, F phases, G fusion groups, k work terms, n pieces of an option.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.costs import device_sums
from recsmith.planners.search.device_state import Assignment, DeviceState
from recsmith.problems import NO_PIECE, memory_used
from recsmith.sharding.coverage import covered_ranks


@dataclass
class PlanCopies:
    """Plans side by side; arrays over S plans. targets: for each plan and table, the targets of its pieces, wide first.

    devices: the problem's pieces and their cost; what this state has placed itself is not used.
    """

    devices: DeviceState
    option: Ints  # (S, T); NO_PIECE for a table that is taken out
    targets: list[list[Ints]]
    sums: Floats  # (S, G, W, k)
    group_loads: Floats  # (S, G, F, W)
    loads: Floats  # (S, F, W)
    common: Floats  # (S, F): seconds that every rank spends in addition, whatever it holds
    in_group: Ints  # (S, G): pieces
    free: Ints  # (S, W)
    host_free: Ints  # (S, H)

    @classmethod
    def of(cls, devices: DeviceState, draft: Assignment) -> "PlanCopies":
        """One plan, from a complete assignment."""
        evaluator, footprint = devices.evaluator, draft.footprint(devices.problem)
        sums = np.moveaxis(device_sums(evaluator, footprint), 1, 0)  # (G, W, k)
        group_loads = np.moveaxis(evaluator.loads(sums), 0, 1)  # (G, F, W)
        in_group = np.bincount(evaluator.group[footprint.mode], minlength=evaluator.groups)
        device, host = memory_used(devices.problem, footprint)
        first = np.searchsorted(draft.table, np.arange(1, len(draft.option)))
        return cls(
            devices, draft.option[None].copy(), [np.split(draft.target, first)], sums[None].copy(),
            group_loads[None].copy(), group_loads.sum(axis=0)[None],
            (devices.shared * (in_group > 0)[:, None]).sum(axis=0)[None], in_group[None],
            (devices.problem.capacity - device)[None], (devices.problem.host_capacity - host)[None],
        )  # fmt: skip

    def take(self, plans: Ints) -> "PlanCopies":
        """Copies of these plans; a plan may be named several times."""
        return PlanCopies(
            self.devices, self.option[plans], [list(self.targets[int(plan)]) for plan in plans], self.sums[plans],
            self.group_loads[plans], self.loads[plans], self.common[plans], self.in_group[plans], self.free[plans],
            self.host_free[plans],
        )  # fmt: skip

    def assignment(self, plan: int) -> Assignment:
        """A plan's pieces, in order of tables."""
        made = Assignment.of(self.devices.problem, self.option[plan])
        made.target[:] = np.concatenate(self.targets[plan])
        return made

    def placed(self, plan: int) -> Ints:
        """Counts of shards (R, W) of a plan's tables that are in groups (problems/legality.py)."""
        legality, on = self.devices.legality, self.devices.legality.nothing_placed()
        for table in np.flatnonzero(legality.row >= 0).tolist():
            option = int(self.option[plan, table])
            if option != NO_PIECE:
                size = int(self.devices.coverage[self.devices.problem.options.piece[option, 0]])
                np.add.at(on[legality.row[table]], covered_ranks(self.targets[plan][table], size).ravel(), 1)
        return on

    def keeps_groups(self, plan: int) -> bool:
        """Whether the constraints between tables hold, for the tables that are in the plan."""
        legality = self.devices.legality
        on = self.placed(plan) if legality.groups else None
        return on is None or all(group.holds(on) for group in legality.groups)

    def totals(self) -> Floats:
        """Seconds of the step of each plan (S,)."""
        return (self.loads.max(axis=2) + self.common).sum(axis=1)

    def full_loads(self) -> Floats:
        """Loads including what all ranks share (S, F, W)."""
        return self.loads + self.common[:, :, None]

    # --- tables in and out ----------------------------------------------------------------------------------------

    def remove(self, plan: int, table: int) -> None:
        """Take a table out of a plan."""
        devices = self.devices
        pieces = pieces_of(devices, int(self.option[plan, table]))
        group = int(devices.group[pieces[0]])
        self._add(plan, group, pieces, self.targets[plan][table], -1)
        if self.in_group[plan, group] == 0:
            self.sums[plan, group] = 0.0  # clears rounding errors
            self.common[plan] -= devices.shared[group]
        self._refresh(plan, group)
        self.option[plan, table], self.targets[plan][table] = NO_PIECE, np.zeros(0, dtype=np.int64)

    def insert(self, plan: int, table: int, option: int, targets: Ints) -> None:
        """Put a table back into a plan: its option, and a target for each piece (n,), wide first."""
        devices = self.devices
        pieces = pieces_of(devices, option)
        group = int(devices.group[pieces[0]])
        if self.in_group[plan, group] == 0:
            self.common[plan] += devices.shared[group]
        self._add(plan, group, pieces, targets, 1)
        self._refresh(plan, group)
        self.option[plan, table], self.targets[plan][table] = option, targets

    def _add(self, plan: int, group: int, pieces: Ints, targets: Ints, sign: int) -> None:
        devices, size = self.devices, int(self.devices.coverage[pieces[0]])
        covered = covered_ranks(targets, size)  # (n, size)
        ranks, last = covered.ravel(), covered[:, -1]
        head, tail = devices.problem.pieces.head, devices.problem.pieces.tail
        np.add.at(self.sums[plan, group], ranks, sign * np.repeat(devices.terms[pieces], size, axis=0))
        np.add.at(self.free[plan], ranks, -sign * np.repeat(head.device[pieces], size))
        np.add.at(self.free[plan], last, sign * (head.device - tail.device)[pieces])
        np.add.at(self.host_free[plan], ranks // devices.local, -sign * np.repeat(head.host[pieces], size))
        np.add.at(self.host_free[plan], last // devices.local, sign * (head.host - tail.host)[pieces])
        self.in_group[plan, group] += sign * len(pieces)

    def _refresh(self, plan: int, group: int) -> None:
        """Compute the loads of a group again."""
        after = self.devices.evaluator.loads(self.sums[plan, group])
        self.loads[plan] += after - self.group_loads[plan, group]
        self.group_loads[plan, group] = after


def pieces_of(devices: DeviceState, option: int) -> Ints:
    """The pieces of an option (n,), wide first."""
    options = devices.problem.options
    return np.repeat(options.piece[option], options.count[option])
