"""How a job of several sharding groups is laid out: TorchRec's 2D parallelism (DMPCollection)."""

import math

from recsmith._types import noun
from recsmith.errors import check_rules


@noun
class Replication:
    """How often a sharding group is replicated in a job, how the groups lie over its hosts, and how often they sync.

    replicas: sharding groups of the job, all with the same plan. job_local_world_size: devices of a host of the job.
    steps_per_sync: training steps from one `DMPCollection.sync()` to the next. use_inter_host_allreduce: TorchRec's
    choice of layout. False, its default: group g holds the ranks g, g + replicas, g + 2 replicas and so on, so that
    ranks with the same shards are neighbours. True: groups are blocks of neighbouring ranks.
    """

    replicas: int
    job_local_world_size: int
    steps_per_sync: int = 1
    use_inter_host_allreduce: bool = False

    def __post_init__(self) -> None:
        """Check counts."""
        local, steps = self.job_local_world_size, self.steps_per_sync
        check_rules(
            f"replicas is {self.replicas}; a job of 2D parallelism has at least 2 sharding groups"
            if self.replicas < 2 else None,
            f"job_local_world_size is {local}; a host has at least 1 device" if local < 1 else None,
            f"steps_per_sync is {steps}; replicas sync every so many steps, at least 1" if steps < 1 else None,
        )  # fmt: skip

    def describe(self) -> str:
        """A few words for a report: `3 replicas, sync every step`."""
        every = "step" if self.steps_per_sync == 1 else f"{self.steps_per_sync} steps"
        return f"{self.replicas} replicas, sync every {every}"

    def group_local_world_size(self, group_size: int) -> int:
        """Neighbouring ranks of a group that always share a host, of a group of so many ranks."""
        stride = 1 if self.use_inter_host_allreduce else self.replicas
        return ranks_on_a_host(group_size, stride, self.job_local_world_size)

    def replicas_on_a_host(self, group_size: int) -> int:
        """Neighbouring ranks with the same shards that always share a host, of groups of so many ranks."""
        stride = group_size if self.use_inter_host_allreduce else 1
        return ranks_on_a_host(self.replicas, stride, self.job_local_world_size)


def ranks_on_a_host(count: int, stride: int, local_world_size: int) -> int:
    """How many of the ranks 0, stride, 2 stride, ... (`count` of them) form blocks that each lie on one host.

    The largest such number. Where the stride does not divide the devices of a host, some blocks of two would lie on two
    hosts, so it is 1.
    """
    return 1 if local_world_size % stride else math.gcd(count, local_world_size // stride)
