"""Extra seconds of messages between hosts where gloo cannot use both directions of a link at once.

gloo sends nothing before it has heard that the other rank is ready to receive. A rank that arrives last at an
all-to-all has heard it already: it writes its data, and only behind them that it is ready itself. The rank that arrived
first can send only after all of that is through. If both arrive at the same time, both are known to be ready, and both
directions are used at once. Traces on links of 200 Mbit/s between two hosts of one rank each show this
(docs/benchmarks/train.md); with several ranks on a host, it was not measured.
"""

from recsmith.plans import Plan

ID_BYTES, LENGTH_BYTES = 8, 4  # bytes of an id and of a bag's length, as they are sent between ranks
TOGETHER_S = 6e-4  # seconds of lookups after which ranks arrive together half the time (forward_turn_s)
HALF_IN_TURN = 1.5  # factor on the seconds of one direction: for ids, before whose exchange the ranks have just met


def between_hosts_s(plan: Plan, ids: float, bags: float) -> float:
    """Seconds that a plan's tables take in addition to its cost on hosts of one rank each, because gloo sends in turns.

    ids, bags: number that a rank looks up in a step. They are exchanged before the lookup, so nothing hides that time;
    in half of these exchanges the two directions take turns.
    """
    cluster = plan.cluster
    if not takes_turns(plan):
        return 0.0
    sent = (ids * ID_BYTES + bags * LENGTH_BYTES) * (1 - 1 / cluster.world_size)
    before = max(each.forward_compute_s for each in plan.cost.per_device)
    back = max(each.backward_comm_s for each in plan.cost.per_device)
    return HALF_IN_TURN * sent / cluster.links.inter_host_bandwidth + forward_turn_s(plan, before) + back


def takes_turns(plan: Plan) -> bool:
    """Whether both directions of a plan's all-to-alls take turns: on CPUs, between hosts of one rank each."""
    cluster = plan.cluster
    return cluster.device.kind == "cpu" and cluster.hosts > 1 and cluster.local_world_size == 1


def forward_turn_s(plan: Plan, before_s: float) -> float:
    """Extra seconds of the forward exchange of rows, because ranks do not arrive at the same time.

    before_s: seconds of the lookups before the exchange. Ranks meet before the lookups, so the longer these take, the
    farther apart ranks arrive. In the backward pass they never arrive together. 0 if messages do not take turns.
    """
    share = before_s / (before_s + TOGETHER_S)
    return share * max(each.forward_comm_s for each in plan.cost.per_device) if takes_turns(plan) else 0.0


def exchange_s(plan: Plan) -> float:
    """Seconds in which a core waits for a link between hosts, and is free to read data."""
    ranks = plan.cost.per_device
    return max(each.forward_comm_s for each in ranks) + max(each.backward_comm_s for each in ranks)
