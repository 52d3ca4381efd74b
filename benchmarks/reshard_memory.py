"""Reshards a checkpoint of 4 GiB there and back, and prints the largest memory of each process that did so.

python benchmarks/reshard_memory.py                       # in a temporary folder, which needs 12 GiB
python benchmarks/reshard_memory.py --mib 256 --home .    # smaller, elsewhere

Eight tables with their Adagrad state: table-wise on 2 ranks, to all sharding types on 4 ranks, and back. The weights
and the state that come back must be the bytes that were saved.
"""

import argparse
import hashlib
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

TESTS = Path(__file__).resolve().parents[1] / "tests"
TABLES, DIM = 8, 32  # columns as the plans of tests/support/resharding.py cut them
LIMIT = 1024  # MiB of peak memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=4096, help="size of the checkpoint")
    parser.add_argument("--home", default=None, help="where to make the temporary folder")
    words = parser.parse_args()
    rows = words.mib * 2**20 // (TABLES * 2 * DIM * 4)
    with tempfile.TemporaryDirectory(dir=words.home) as name:
        home = Path(name)
        print(f"{TABLES} tables of {rows:,} x {DIM}, fp32, with element-wise state: {words.mib:,} MiB")
        digest = run("save", home, rows)
        run("there", home, rows)
        run("back", home, rows)
        same = run("digest", home, rows) == digest
        print("the bytes that came back are those that were saved" if same else "THE BYTES DIFFER")
        sys.exit(0 if same else 1)


def run(step: str, home: Path, rows: int) -> str:
    """Run a step in a process of its own; what it says last."""
    done = subprocess.run(
        [sys.executable, __file__, "--step", step, str(home), str(rows)], stdout=subprocess.PIPE, text=True, check=True
    )
    said = done.stdout.strip().splitlines()
    print("\n".join(said[:-1]))
    return said[-1]


def one_step(step: str, home: Path, rows: int) -> None:
    sys.path.insert(0, str(TESTS))
    from recsmith.adapters.reshard.reshard import reshard

    before, after = plans(rows)
    started = time.perf_counter()
    if step == "save":
        save(home / "saved", rows)
        print("saved\n" + digest(home / "saved", rows))
        return
    if step == "digest":
        print(digest(home / "back", rows))
        return
    if step == "there":
        report = reshard(home / "saved", before, after, home / "there")
    else:
        report = reshard(home / "there", after, before, home / "back")
    seconds, peak = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    speed = report.written_bytes / seconds / 1e6
    print(f"{step}: {report.written_bytes / 2**30:.2f} GiB in {seconds:.1f} s ({speed:.0f} MB/s), peak {peak} MiB")
    print("ok" if peak <= LIMIT else f"MORE THAN {LIMIT} MiB")


def plans(rows: int) -> tuple[Any, Any]:
    """Table-wise on two ranks, and six types on four."""
    from support.build import table
    from support.exactness import cpu_cluster
    from support.resharding import TYPES, hand_made, placement

    from recsmith import Placement

    tables = [table(f"t{i}", rows, DIM) for i in range(TABLES)]
    whole = [
        Placement(table=each.name, sharding_type="table_wise", compute_kernel="fused", ranks=(i % 2,))
        for i, each in enumerate(tables)
    ]
    wide = cpu_cluster(2, 2)
    kinds = [kind for kind in TYPES if kind != "data_parallel"]
    cut = [placement(each, kinds[i % len(kinds)], wide, i) for i, each in enumerate(tables)]
    return hand_made(tables, whole, cpu_cluster(2, 1), "adagrad"), hand_made(tables, cut, wide, "adagrad")


def save(folder: Path, rows: int) -> None:
    """Save what a job of two ranks would; this step needs the memory of all."""
    import torch
    from torch.distributed.checkpoint.state_dict_saver import save as save_state

    generator = torch.Generator().manual_seed(0)
    weights = {f"{key(i)}": torch.rand(rows, DIM, generator=generator) for i in range(TABLES)}
    state = {key(i): {f"t{i}.momentum1": torch.rand(rows, DIM, generator=generator)} for i in range(TABLES)}
    save_state({"model": weights, "optimizer": {"state": state}}, checkpoint_id=folder, no_dist=True)


def key(number: int) -> str:
    return f"sparse.embedding_bags.t{number}.weight"


def digest(folder: Path, rows: int) -> str:
    """SHA-256 of all tables and states, one at a time."""
    import torch
    from torch.distributed.checkpoint.state_dict_loader import load

    found = hashlib.sha256()
    for i in range(TABLES):
        for path in (["model", key(i)], ["optimizer", "state", key(i), f"t{i}.momentum1"]):
            tensor = torch.empty(rows, DIM)
            state: Any = tensor
            for word in reversed(path):
                state = {word: state}
            load(state, checkpoint_id=folder, no_dist=True)
            found.update(cast(Any, tensor.numpy()))
    return found.hexdigest()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--step"]:
        one_step(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
