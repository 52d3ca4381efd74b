"""What messages between hosts take of a step beside the plan's cost, where gloo sends one way and then the other.

gloo sends nothing before it has heard that the other rank is ready to receive. A rank that comes last to an all-to-all
has heard it, writes its data, and behind these that it is ready itself: data of the first one follows when all of that
is through. Where both come at the same time, both have told, and both directions are used at once. So traces say, on
links of 200 Mbit/s between two hosts of one rank each (docs/benchmarks/train.md); where several ranks share a host, it
was not measured.
"""

from recsmith.plans import Plan

ID_BYTES, LENGTH_BYTES = 8, 4  # of an id and of a bag's length, as they cross ranks
TOGETHER_S = 6e-4  # of lookups, after which ranks come together half the time (forward_turn_s)
HALF_IN_TURN = 1.5  # of the seconds of one direction: ids, before which ranks have just met


def between_hosts_s(plan: Plan, ids: float, bags: float) -> float:
    """Seconds more than the plan's cost that tables take where a rank alone is on its host, by what gloo does there.

    ids, bags: that a rank looks up in a step. These cross before the lookup, and nothing hides that; of half of such
    exchanges the directions take turns.
    """
    cluster = plan.cluster
    if not takes_turns(plan):
        return 0.0
    sent = (ids * ID_BYTES + bags * LENGTH_BYTES) * (1 - 1 / cluster.world_size)
    before = max(each.forward_compute_s for each in plan.cost.per_device)
    back = max(each.backward_comm_s for each in plan.cost.per_device)
    return HALF_IN_TURN * sent / cluster.links.inter_host_bandwidth + forward_turn_s(plan, before) + back


def takes_turns(plan: Plan) -> bool:
    """Whether all-to-alls of a plan go one way and then the other: on CPUs, between hosts of one rank each."""
    cluster = plan.cluster
    return cluster.device.kind == "cpu" and cluster.hosts > 1 and cluster.local_world_size == 1


def forward_turn_s(plan: Plan, before_s: float) -> float:
    """Seconds more that rows take to cross since ranks come one after the other, where their messages take turns.

    before_s: of lookups, after which they come: ranks meet before these, so the longer they take the farther apart
    ranks come. Backward, they always do.
    """
    share = before_s / (before_s + TOGETHER_S)
    return share * max(each.forward_comm_s for each in plan.cost.per_device) if takes_turns(plan) else 0.0


def exchange_s(plan: Plan) -> float:
    """Seconds in which a core waits for a link between hosts, and its reader has it."""
    ranks = plan.cost.per_device
    return max(each.forward_comm_s for each in ranks) + max(each.backward_comm_s for each in ranks)
