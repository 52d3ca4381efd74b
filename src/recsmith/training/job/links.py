"""Whether what was told of a step is of links that this job has.

A plan of several hosts is priced by the links between them. Where a job has fewer hosts than its plan, as where ranks
of one machine stand in for them, nothing crosses those links, and the step that was told is not that of this job.
"""

import os

from recsmith.clusters import Cluster
from recsmith.jobs.agent import PARENT
from recsmith.jobs.hosts.rank import in_hosts
from recsmith.units import counted, format_time


def hosts_here(ranks: int) -> int:
    """Machines that the ranks of this job are on: one where RecSmith started them there, else as its launcher says."""
    if PARENT in os.environ and not in_hosts():
        return 1
    return max(1, ranks // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", ranks))))


def why_not_comparable(planned: Cluster, ranks: int) -> str | None:
    """Why a step that was told by the cluster of a plan is not to be compared with one of this job; None where it is.

    ranks: of the job.
    """
    hosts, here = planned.job_world_size // planned.job_local_world_size, hosts_here(ranks)
    if hosts <= here:
        return None
    return (
        f"not comparable: that is of {hosts} hosts and the links between them, and this job ran on "
        f"{counted(here, 'host')}"
    )


def step_line(took_s: float | None, told_s: float | None, planned: Cluster, ranks: int) -> str | None:
    """What the usual step of a job took, beside what was told of it; None where nobody timed it."""
    if took_s is None:
        return None
    took = f"the usual step took {format_time(took_s)}"
    if told_s is None:
        return took
    why = why_not_comparable(planned, ranks)
    return f"{took}; {format_time(told_s)} were told{f', {why}' if why else ''}"
