"""What towers exclude: other parts of a run and plans that cannot go with them; without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from recsmith.plans import Plan
from recsmith.plans.towers import ON_A_HOST, plan_command
from recsmith.training.run.parts import AHEAD_OF_BATCHES, Messages, PlannedTables, not_as_plain
from recsmith.training.seams.capabilities import LAYERS, POOLED, ROWS, TABLES, Capabilities
from recsmith.training.systems.towers.settings import ACROSS, Towers


@dataclass(frozen=True)
class TowersOfHosts:
    """Tables in towers, one for each host of a job. Dense layers of a tower exist on its host alone.

    hosts: the number of hosts of the job, if it is known.
    """

    owns: ClassVar[Capabilities] = Capabilities({TABLES})
    needs: ClassVar[Capabilities] = Capabilities({POOLED, ROWS, LAYERS})
    cures: ClassVar[Mapping[str, str]] = {
        POOLED: "a tower makes one vector of a sample out of those of its tables, and rows of events stay as many as "
        "there are events, so leave towers out"
    }
    towers: Towers
    hosts: int = 1
    label: str = "model.table_module: towers"

    def refuses(self, other: Any, /) -> str | None:
        """Refuse int8 messages, ids sent ahead on several hosts, and plans that split a tower between hosts."""
        if isinstance(other, Messages):
            of_int8 = "comms ask for int8, which towers do not send back yet; use fp16 or bf16"
            return not_as_plain(other.comms, "towers", of_int8)
        if other is AHEAD_OF_BATCHES and self.hosts > 1:
            return f"{other.label} does not go with towers on several hosts, whose {ACROSS}; write pipeline: base"
        return self._refused_plan(other.plan) if isinstance(other, PlannedTables) else None

    def _refused_plan(self, plan: Plan) -> str | None:
        """Why a plan does not have each tower on a host of its own; None if it does, or if there is one host."""
        hosts, local = plan.cluster.hosts, plan.cluster.local_world_size
        if hosts == 1:
            return None
        if hosts != len(self.towers.towers):
            what = "more towers than hosts" if len(self.towers.towers) > hosts else "fewer towers than hosts"
            return (
                f"there are {what}: {len(self.towers.towers)} towers, and the plan is for {hosts} hosts; give as many, "
                "or train on one host"
            )
        at = {name: host for host, tower in enumerate(self.towers.towers) for name in tower}
        for placement in plan.placements:
            if placement.sharding_type not in ON_A_HOST:
                return (
                    f"table '{placement.table}' is {placement.sharding_type} in the plan, which crosses hosts, and it "
                    f"is of a tower; use a plan of {', '.join(ON_A_HOST)}"
                )
            odd = next((rank for rank in placement.ranks if rank // local != at.get(placement.table)), None)
            if odd is not None:
                return (
                    f"table '{placement.table}' of tower {at.get(placement.table)} is on rank {odd} in the plan, which "
                    f"is of host {odd // local}; give towers as the plan has them, or leave them out and plan anew: "
                    f"{plan_command(hosts)}"
                )
        return None
