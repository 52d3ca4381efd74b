"""The program of each rank of a local job: python -m recsmith.jobs.worker FOLDER, started by torchrun.

torch is imported late, so that a rank ends with its parent from its first milliseconds on.
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

SENTENCE = ".sentence"  # ending of the file with class and message of a RecSmith error, next to its traceback
WAITING_S = 10.0  # seconds after which a rank reports that it waits: longer than ranks of one start need
TIMEOUT = timedelta(minutes=10)  # of a collective that some rank never joins; a whole job has the same limit


def run(folder: Path) -> None:
    """Run the job's function, in a process group unless the job joins none, and write its result into the folder."""
    rank = int(os.environ["RANK"])
    job = json.loads((folder / "job.json").read_text())
    module, _, name = job["function"].partition(":")
    gc.disable()  # imported objects are never garbage, and collecting takes a sixth of the time to import TorchRec
    if job.get("joins", True):
        join()
    function = getattr(import_module(module), name)
    gc.enable()
    result = function(**job["arguments"])
    write_text(str(folder / f"rank-{rank}.json"), json.dumps({"attempt": _attempt(), "result": result}))


def join() -> None:
    """Join the job's process group: nccl if every rank of this machine has its own GPU, else gloo."""
    import torch

    emulated = int(os.environ["GROUP_WORLD_SIZE"]) > 1  # equal local ranks of two emulated hosts would share a GPU
    if emulated or torch.cuda.device_count() < int(os.environ["WORLD_SIZE"]):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    join_group("nccl" if torch.cuda.is_available() else "gloo")


def join_group(backend: str) -> None:
    """Join the process group of a launcher's job, also after a restart.

    torchrun with a fixed address keeps its store over restarts, and PyTorch 2.13 would read the addresses of the
    previous attempt's ranks from it. So each attempt has its own prefix of keys.

    Raises:
        RecSmithError: the ranks cannot meet at MASTER_ADDR and MASTER_PORT, for example if the port is taken.
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
    """Number of the job's current start, from 0."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def _say_that_it_waits() -> None:
    """Print to stderr that this rank waits for other ranks, and what to do."""
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
    """End a finished rank with an exit code: the last call of a script under torchrun, on every rank.

    gloo's own teardown sometimes aborts a finished job, in a race between ranks. So all ranks meet at a barrier, output
    is flushed, and the process ends without running destructors or atexit functions.
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
    """Run the job and end the process; a failure's traceback is written first, so no teardown can hide or delay it."""
    try:
        run(folder)
        leave()
    except BaseException as error:
        file = folder / f"{_attempt():04}-{time.time_ns()}.rank-{os.environ['RANK']}.error"
        if isinstance(error, RecSmithError):  # an error for the user, which the parent process raises again
            file.with_suffix(SENTENCE).write_text(json.dumps({"kind": type(error).__name__, "message": str(error)}))
        file.write_text(traceback.format_exc())
        traceback.print_exc()
        _end(1)


if __name__ == "__main__":
    end_with_parent()
    main(Path(sys.argv[1]))
