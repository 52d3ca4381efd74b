"""What each rank of a local job runs: python -m recsmith.bridge.worker FOLDER, started by torchrun."""

import gc
import json
import os
import sys
import traceback
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist

from recsmith.bridge.launch import end_with_parent

TIMEOUT = timedelta(minutes=10)  # of a collective that some rank never joins


def run(folder: Path) -> None:
    """Run the job's function inside a process group and leave its result in the folder."""
    rank = int(os.environ["RANK"])
    job = json.loads((folder / "job.json").read_text())
    module, _, name = job["function"].partition(":")
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    try:
        dist.init_process_group(backend, timeout=TIMEOUT)
        result = getattr(import_module(module), name)(**job["arguments"])
        (folder / f"rank-{rank}.json").write_text(json.dumps(result))
    except BaseException:
        (folder / f"rank-{rank}.error").write_text(traceback.format_exc())
        raise


def leave() -> NoReturn:
    """End without the races of gloo's own teardown: all ranks meet, then go without running destructors."""
    gc.collect()
    dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    end_with_parent()
    run(Path(sys.argv[1]))
    leave()
