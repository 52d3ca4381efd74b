"""The number of ranks of a job, from its launcher, the run, or this machine."""

import os

from recsmith.errors import UsageError
from recsmith.plans import load_plan
from recsmith.training.run import MADE_HERE, Run

LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK")  # environment that torchrun and others set
SLURM = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS", "LOCAL_RANK": "SLURM_LOCALID"}
MEETING = ("MASTER_ADDR", "MASTER_PORT")  # environment: where ranks meet, which srun does not set


def launcher_environment() -> dict[str, str] | None:
    """The launcher's variables of this process (RANK, WORLD_SIZE, LOCAL_RANK); None if no launcher started it.

    Raises:
        UsageError: srun started it, and MASTER_ADDR or MASTER_PORT is not set; or RANK is set without LOCAL_RANK.
    """
    if all(name in os.environ for name in LAUNCHED):
        return {name: os.environ[name] for name in LAUNCHED}
    if "SLURM_PROCID" in os.environ and int(os.environ.get("SLURM_NTASKS", "1")) > 1:
        missing = [name for name in MEETING if name not in os.environ]
        if missing:
            raise UsageError(
                f"srun started this job and {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set; "
                "export MASTER_ADDR (the first host of the job) and MASTER_PORT (docs/launch.md)"
            )
        return {name: os.environ[word] for name, word in SLURM.items()}
    if "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1":
        raise UsageError(
            f"RANK is {os.environ['RANK']}, WORLD_SIZE is {os.environ['WORLD_SIZE']} and LOCAL_RANK is not set; export "
            "LOCAL_RANK too, the number of this process on its machine from 0, as torchrun does; or unset RANK and "
            "WORLD_SIZE to train on this machine alone"
        )
    return None


def local_ranks(run: Run) -> int:
    """Processes of a run on this machine: as the run says, one for each GPU, as many as its plan has, or one."""
    if run.ranks is not None:
        return run.ranks
    import torch

    if torch.cuda.is_available():
        return torch.cuda.device_count()
    return load_plan(run.plan).cluster.job_world_size if run.plan not in MADE_HERE else 1


def local_hosts(run: Run, ranks: int) -> int:
    """Number of hosts that `ranks` ranks of this machine stand in for: the hosts of the run's plan file.

    It is 1 on GPUs, or if the plan is for another number of ranks.
    """
    if run.plan in MADE_HERE:
        return 1
    import torch

    if torch.cuda.is_available():
        return 1
    cluster = load_plan(run.plan).cluster
    return cluster.job_world_size // cluster.job_local_world_size if cluster.job_world_size == ranks else 1


def stand_in_note(run: Run) -> list[str]:
    """A line that says that this machine's ranks stand in for several hosts, if they do; none in a launcher's job."""
    hosts = 1 if launcher_environment() is not None else local_hosts(run, local_ranks(run))
    if hosts == 1:
        return []
    return [
        f"the plan is of {hosts} hosts, for which ranks of this machine stand in, without the links between them; to "
        "train on the hosts themselves start the run on each under torchrun (docs/launch.md)"
    ]
