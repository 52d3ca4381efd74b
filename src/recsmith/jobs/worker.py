"""What each rank of a local job runs: python -m recsmith.jobs.worker FOLDER, started by torchrun.

torch is imported late, so that a rank is bound to its parent's life from its first milliseconds.
"""

import gc
import json
import logging
import os
import sys
import threading
import time
import traceback
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from recsmith.errors import RecSmithError
from recsmith.files import write_text
from recsmith.jobs.agent import end_with_parent
from recsmith.jobs.hosts.rank import HOST_ROUND

SENTENCE = ".sentence"  # of a failure that RecSmith raised on purpose: its class and message, beside its traceback
WAITING_S = 10.0  # after which a rank says that it waits: longer than ranks of one start need
TIMEOUT = timedelta(minutes=10)  # of a collective that some rank never joins; a whole job has as long


def run(folder: Path) -> None:
    """Run the job's function and leave its result in the folder; inside a process group, unless it joins none."""
    rank = int(os.environ["RANK"])
    job = json.loads((folder / "job.json").read_text())
    module, _, name = job["function"].partition(":")
    gc.disable()  # what is imported stays, and looking through it for garbage takes a sixth of importing TorchRec
    if job.get("joins", True):
        join()
    function = getattr(import_module(module), name)
    gc.enable()
    result = function(**job["arguments"])
    write_text(str(folder / f"rank-{rank}.json"), json.dumps({"attempt": _attempt(), "result": result}))


def join() -> None:
    """Join the job's process group: nccl where every rank of this machine has a GPU of its own, gloo elsewhere."""
    import torch

    emulated = int(os.environ["GROUP_WORLD_SIZE"]) > 1  # local ranks of two hosts would meet on one GPU
    if emulated or torch.cuda.device_count() < int(os.environ["WORLD_SIZE"]):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    join_group("nccl" if torch.cuda.is_available() else "gloo")


def join_group(backend: str) -> None:
    """Join the process group of a launcher's job, also one that was started again.

    torchrun with a fixed address keeps its store over restarts, and PyTorch 2.13 reads in it where ranks of the attempt
    before listened. So each attempt has keys of its own.

    Raises:
        RecSmithError: the ranks cannot meet at MASTER_ADDR and MASTER_PORT, such as where another program has the port.
    """
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    waiting = threading.Timer(WAITING_S, _say_that_it_waits)
    waiting.daemon = True
    waiting.start()
    try:
        store, rank, world_size = next(iter(rendezvous("env://", timeout=TIMEOUT)))
    except dist.DistNetworkError as error:
        raise RecSmithError(_unreachable(str(error))) from None
    else:
        own = PrefixStore(f"recsmith/attempt-{os.environ.get(HOST_ROUND) or _attempt()}", store)
        dist.init_process_group(backend, store=own, rank=rank, world_size=world_size, timeout=TIMEOUT)
    finally:
        waiting.cancel()


def _attempt() -> int:
    """Which start of the job's ranks this is, from 0."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def _say_that_it_waits() -> None:
    """Tell whoever reads stderr which ranks this one waits for."""
    rank, size = os.environ.get("RANK", "?"), os.environ.get("WORLD_SIZE", "?")
    print(  # noqa: T201
        f"recsmith: rank {rank} of {size} has waited {WAITING_S:g} s for the others at {_address()}; start all "
        f"{size} ranks, with the same MASTER_ADDR and MASTER_PORT on every host",
        file=sys.stderr,
        flush=True,
    )


def _unreachable(problem: str) -> str:
    place = _address()
    if "EADDRINUSE" in problem or "already in use" in problem:
        return f"another program listens at {place}, where ranks would meet; export another MASTER_PORT on every host"
    return f"rank {os.environ.get('RANK')} cannot meet the others at {place} ({problem.splitlines()[0]}); " + (
        "export MASTER_ADDR and MASTER_PORT of the first host, the same on every host"
    )


def _address() -> str:
    return f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"


def leave(code: int = 0) -> NoReturn:
    """End a rank whose work is done with an exit code: the last call of a script under torchrun, on every rank.

    gloo's own teardown aborts a finished job now and then, in a race between ranks. So all ranks meet, output is
    flushed, and the process ends without running destructors or atexit functions.
    """
    import torch.distributed as dist

    gc.collect()
    dist.barrier()
    _end(code)


def _end(code: int) -> NoReturn:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(folder: Path) -> NoReturn:
    """Run the job and end; a failure leaves its traceback in the folder, and no teardown can hide or delay it."""
    try:
        run(folder)
        leave()
    except BaseException as error:
        file = folder / f"{_attempt():04}-{time.time_ns()}.rank-{os.environ['RANK']}.error"
        if isinstance(error, RecSmithError):  # a sentence for the user, which the process that started the job raises
            file.with_suffix(SENTENCE).write_text(json.dumps({"kind": type(error).__name__, "message": str(error)}))
        file.write_text(traceback.format_exc())
        traceback.print_exc()
        _end(1)


if __name__ == "__main__":
    end_with_parent()
    main(Path(sys.argv[1]))
