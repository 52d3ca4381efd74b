# pyright: basic
"""Memory over the time of a step: what PyTorch's allocator does in a plain TorchRec job of one rank.

python benchmarks/gpu/step_memory.py jobs.json FOLDER             # on the GPU: some seconds a job
python benchmarks/gpu/step_memory.py --show FOLDER

Jobs are those of captures.py. Of each: bytes that are allocated after the tables, the model and two steps are there;
then the highest of forward, backward and the optimizer's step; and every allocation and free of one step, as
[microseconds, bytes, phase], freed bytes negative. JSON, no pickle.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

PHASES = ("zero_grad", "forward", "backward", "step")
JOBS = ("dlrm-8192-whole", "dlrm_wide-8192-whole", "dlrm_wide-8192-cached", "dlrm_dcn_wide-8192-whole",
        "mlp_wide-8192-whole", "transformer_wide-1024-whole", "dlrm-64-whole", "mlp-64-whole")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", type=Path, nargs="*")
    parser.add_argument("--show", type=Path)
    parser.add_argument("--seconds", type=float, default=40.0)
    options = parser.parse_args()
    if options.show:
        print("\n".join(tables(options.show)))
        return
    from recsmith.errors import RecSmithError
    from recsmith.jobs.launch import launch

    path, home = options.paths
    home.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text())
    jobs = {name: known[name] for name in JOBS if name in known and not (home / f"{name}.json").exists()}
    try:
        launch("step_memory:watch_each", {"jobs": jobs, "home": str(home.resolve())}, ranks=1,
               timeout_s=options.seconds, on_message=lambda said: print(*said, flush=True))  # fmt: skip
    except RecSmithError as error:
        print(f"ended early: {str(error).splitlines()[0]}", flush=True)


def watch_each(jobs: dict[str, Any], home: str) -> int:
    """Watch each job in this process, and write its file; how many."""
    import gc

    import torch

    from recsmith.jobs.log import write_message

    for name, words in jobs.items():
        try:
            found = watched(words["model"], words["plan"], words["batch"])
        except (RuntimeError, ValueError, AssertionError) as error:  # the others go on
            found = {"failed": str(error)[:600]}
        (Path(home) / f"{name}.json").write_text(json.dumps(found))
        write_message([name, found.get("failed", f"{len(found.get('events', [])):,} events")])
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return len(jobs)


def watched(model: dict[str, Any], plan: Any, batch: int) -> dict[str, Any]:
    """Bytes of a job: at rest, of each phase, and of each allocation of a step."""
    import predict_jobs
    import torch

    from recsmith.files import decode
    from recsmith.prediction.models import Model

    gpu = torch.cuda.is_available()
    torch.manual_seed(0)
    empty = torch.cuda.memory_allocated() if gpu else 0
    made = decode(Model, model, "the job's model")
    optimizer, loss, draw = (predict_jobs.sparse_job if plan else predict_jobs.dense_job)(made, plan, batch)
    built = torch.cuda.memory_allocated() if gpu else 0
    batches = [draw(torch.Generator().manual_seed(number)) for number in range(2)]
    marks: list[tuple[str, int]] = []

    def phase(name: str, call: Any) -> Any:
        if gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        value = call()
        if gpu:
            torch.cuda.synchronize()
            marks.append((name, torch.cuda.max_memory_allocated() - empty))
        return value

    def step(number: int) -> None:
        phase("zero_grad", optimizer.zero_grad)
        value = phase("forward", lambda: loss(batches[number % 2]))
        phase("backward", value.backward)
        phase("step", optimizer.step)

    for number in range(3):
        step(number)
    marks.clear()
    resting = torch.cuda.memory_allocated() - empty if gpu else 0
    if gpu:
        torch.cuda.memory._record_memory_history(max_entries=200_000, stacks="python", context=None)
    step(3)
    events = timeline(torch.cuda.memory._snapshot()) if gpu else []
    if gpu:
        torch.cuda.memory._record_memory_history(enabled=None)
    return {"model": model, "batch": batch, "built": built - empty, "resting": resting, "phases": dict(marks),
            "reserved": torch.cuda.memory_reserved() if gpu else 0, "used": in_use() if gpu else 0,
            "events": events}  # fmt: skip


def in_use() -> int:
    """Bytes of the device that are in use, by whatever."""
    import torch

    free, whole = torch.cuda.mem_get_info()
    return whole - free


def timeline(snapshot: Any) -> list[list[int]]:
    """[microseconds since the first, bytes] of each allocation (+) and free (-) of the allocator's record."""
    found: list[tuple[int, int]] = []
    for each in snapshot["device_traces"][0]:
        if each["action"] in ("alloc", "free_completed"):
            sign = 1 if each["action"] == "alloc" else -1
            found.append((each.get("time_us", 0), sign * each["size"]))
    return [[time_us - found[0][0], size] for time_us, size in found]


def tables(home: Path) -> list[str]:
    """Bytes at rest and the highest of each phase; the record's own highest beside them."""
    lines = ["| job | built, MiB | at rest | " + " | ".join(PHASES) + " | highest by the record | reserved |",
             "|" + "---|" * (5 + len(PHASES))]  # fmt: skip
    for path in sorted(home.glob("*.json")):
        found = json.loads(path.read_text())
        if "phases" not in found:
            continue
        level = highest = found["resting"]
        for _, size in found["events"]:
            level += size
            highest = max(highest, level)
        cells = [found["phases"].get(phase, 0) for phase in PHASES]
        lines.append(f"| {path.stem} | " + " | ".join(
            f"{each / 2**20:,.0f}" for each in (found["built"], found["resting"], *cells, highest, found["reserved"])
        ) + " |")  # fmt: skip
    return lines


if __name__ == "__main__":
    main()
