"""Whether a predicted step assumes links between hosts that this job does not have.

A plan of several hosts is priced with the links between them. If a job has fewer hosts than its plan, because ranks of
one machine stand in for them, nothing is sent over those links, and the predicted step is not that of this job.
"""

import os

from recsmith.clusters import Cluster
from recsmith.jobs.agent import PARENT
from recsmith.jobs.hosts.rank import in_hosts
from recsmith.units import counted, format_time


def hosts_here(ranks: int) -> int:
    """Number of machines of this job: one if RecSmith started its ranks here, otherwise as the launcher says."""
    if PARENT in os.environ and not in_hosts():
        return 1
    return max(1, ranks // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", ranks))))


def why_not_comparable(planned: Cluster, ranks: int) -> str | None:
    """Why a step predicted for a plan's cluster cannot be compared with a step of this job; None if it can.

    ranks: ranks of the job.
    """
    hosts, here = planned.job_world_size // planned.job_local_world_size, hosts_here(ranks)
    if hosts <= here:
        return None
    return (
        f"not comparable: that is of {hosts} hosts and the links between them, and this job ran on "
        f"{counted(here, 'host')}"
    )


def step_line(took_s: float | None, told_s: float | None, planned: Cluster, ranks: int) -> str | None:
    """The usual step time of a job compared with the prediction, in words; None if it was not timed."""
    if took_s is None:
        return None
    took = f"the usual step took {format_time(took_s)}"
    if told_s is None:
        return took
    why = why_not_comparable(planned, ranks)
    return f"{took}; {format_time(told_s)} were predicted{f', {why}' if why else ''}"
