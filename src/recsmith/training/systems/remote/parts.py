"""What a run with its tables on servers refuses, and the errors that say so; without torch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, ClassVar

from recsmith._components import parsed
from recsmith._install import RAY
from recsmith.errors import MissingExtra, UsageError, check_rules
from recsmith.training.collectives import collectives_of
from recsmith.training.run import Run, names_component
from recsmith.training.run.parts import (
    BF16_PRODUCTS,
    GPU,
    Messages,
    NarrowTables,
    OwnStep,
    TableOptimizer,
    checkpoint_parts,
)
from recsmith.training.run.refusals import check_together, data_parts, model_parts, trained_by
from recsmith.training.seams import capabilities as job
from recsmith.training.seams.capabilities import Capabilities, Part
from recsmith.training.systems.remote.settings import OPTIMIZERS_OF_SERVERS, RunRemote


@dataclass(frozen=True)
class TablesOnServers:
    """Tables on servers, as a part of a run."""

    needs: ClassVar[Capabilities] = (job.OF_ONE_MODEL - {job.LOSS}) | {
        job.ALONE, job.EXCHANGE, job.FP32_TABLES, job.ON_CPU, job.ONE_PLACE, job.ONE_RATE, job.ONE_TABLE,
        job.USUAL_START,
    }  # fmt: skip
    cures: ClassVar[Mapping[str, str]] = {
        job.FP32_TABLES: "give it fp32",
        job.ALONE: "leave remote out, or take another model",
        job.USUAL_START: "leave one of them out",
        job.ONE_RATE: "leave one of them out",
        job.ONE_TABLE: "look it up in one table, or leave remote out",
        job.ON_CPU: "leave remote out there, since PyTorch discourages its RPC on GPUs",
        job.ONE_PLACE: "use a plan without data_parallel, or leave remote out",
    }
    label: str = "remote"

    def refuses(self, other: Any, /) -> str | None:
        """Why this part refuses an optimizer that servers lack, or a codec of messages that they do not send."""
        if isinstance(other, TableOptimizer) and other.name not in OPTIMIZERS_OF_SERVERS:
            return (
                f"optimizers.sparse.name is {other.name}, and servers have {', '.join(OPTIMIZERS_OF_SERVERS)}; use one "
                "of these, or leave remote out"
            )
        return _refused_messages(other.comms) if isinstance(other, Messages) else None


def _refused_messages(comms: Any) -> str | None:
    named = parsed(comms, "comms")[0] if names_component(comms) else "quantised"
    made: Any = None if named != "quantised" else collectives_of(comms)
    codec = named if made is None else next((each for each in (made.forward, made.backward) if each != "fp32"), None)
    if codec is None:
        return None
    return f"comms: {codec} does not go with remote yet, whose rows cross in fp32; leave comms out"


def check_remote(run: Run, *, launched: bool) -> None:
    """Refuse a run whose servers cannot be started. launched: whether a launcher such as torchrun started this process.

    Raises:
        UsageError: a setting of the run does not go with servers.
        MissingExtra: the backend is not installed, or this PyTorch lacks it.
    """
    remote = run.remote
    if remote is None:
        return
    check_rules(
        "a launcher started this job, and remote starts its servers and trainers itself; run `recsmith train` once, "
        "without the launcher"
        if launched
        else None,
        f"remote.staleness is {remote.staleness}, under which batches are leased one by one, and data.batch_changes "
        "come after steps; leave one of them out"
        if remote.staleness and run.data.batch_changes
        else None,
        "remote does not go with array yet; leave one of them out" if run.array is not None else None,
        "remote does not go with capture yet; leave one of them out" if run.capture is not None else None,
    )
    if remote.backend == "ray" and find_spec("ray") is None:
        raise MissingExtra(f"`remote.backend: ray` needs Ray: {RAY}; or write backend: sockets")
    if remote.backend == "rpc":
        import torch

        if not hasattr(torch._C, "_rpc_init"):  # the check of torch.distributed.rpc.is_available
            raise MissingExtra(
                "`remote.backend: rpc` needs a PyTorch that is built with RPC, and this one is not; install one that "
                "is, or write backend: sockets"
            )


def check_restarts(restarts: int) -> None:
    """Raise UsageError if --max-restarts is given, which a job with servers does not support."""
    if restarts:
        raise UsageError(
            "--max-restarts starts all ranks again, and a job with remote goes on without a trainer that "
            "fails; leave it out"
        )


def remote_parts(run: Run, device: str = "cpu") -> list[Part]:
    """The parts of a run whose tables are on servers, on a device type; none if the run has no servers."""
    if run.remote is None:
        return []
    step = run.step_named[0]
    narrow = sorted((each.data_type, each.name) for each in run.model.tables if each.data_type != "fp32")
    return [
        TablesOnServers(), *data_parts(run), *model_parts(run.model, tables=run.model.tables), *trained_by(run),
        TableOptimizer(run.optimizers.sparse.name),
        *(NarrowTables(name, kind) for kind, name in narrow[:1]),
        *([OwnStep(step)] if step not in ("auto", "base") else []),
        *([BF16_PRODUCTS] if run.model.precision == "bf16" else []),
        *([GPU] if "cuda" in (run.device, device) else []),
        *checkpoint_parts(run),
    ]  # fmt: skip


def remote_refusal(run: Run, staleness: int) -> str | None:
    """Why a run cannot have its tables on servers with a given staleness; None if it can."""
    served = replace(run, remote=replace(run.remote or RunRemote(), staleness=staleness))
    try:
        check_remote(served, launched=False)
        check_together(remote_parts(served))
    except (UsageError, MissingExtra) as error:
        return str(error)
    return None
