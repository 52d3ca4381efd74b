"""How many ranks a job has, as its launcher says, or as this machine and the run have it."""

import os

from recsmith.errors import UsageError
from recsmith.plans import load_plan
from recsmith.training.run import MADE_HERE, Run

LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK")  # environment that torchrun and others set
SLURM = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS", "LOCAL_RANK": "SLURM_LOCALID"}
MEETING = ("MASTER_ADDR", "MASTER_PORT")  # where ranks meet, which srun does not say


def launcher_environment() -> dict[str, str] | None:
    """What a launcher says of this process: RANK, WORLD_SIZE, LOCAL_RANK; None where none started it.

    Raises:
        UsageError: srun started it, and nobody says where ranks meet; or RANK and WORLD_SIZE are set alone.
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
    """Processes that a run gets on this machine: as it says, one a GPU, as many as its plan has, or one."""
    if run.ranks is not None:
        return run.ranks
    import torch

    if torch.cuda.is_available():
        return torch.cuda.device_count()
    return load_plan(run.plan).cluster.job_world_size if run.plan not in MADE_HERE else 1


def local_hosts(run: Run, ranks: int) -> int:
    """Hosts that so many ranks of this machine stand in for: those of the run's plan file, of as many ranks, on CPU."""
    if run.plan in MADE_HERE:
        return 1
    import torch

    if torch.cuda.is_available():
        return 1
    cluster = load_plan(run.plan).cluster
    return cluster.job_world_size // cluster.job_local_world_size if cluster.job_world_size == ranks else 1


def stand_in_note(run: Run) -> list[str]:
    """A line where this machine's ranks stand in for several hosts; none in a launcher's job."""
    hosts = 1 if launcher_environment() is not None else local_hosts(run, local_ranks(run))
    if hosts == 1:
        return []
    return [
        f"the plan is of {hosts} hosts, for which ranks of this machine stand in, without the links between them; to "
        "train on the hosts themselves start the run on each under torchrun (docs/launch.md)"
    ]
