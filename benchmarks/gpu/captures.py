"""Captured steps of jobs with large and small dense models, and of the same job under other plans, on one GPU.

python benchmarks/gpu/captures.py jobs jobs.json                   # anywhere planners run: what is to be trained
python benchmarks/gpu/captures.py measure jobs.json FOLDER         # on the GPU, all in one process, about 6 s a job
python benchmarks/gpu/captures.py table FOLDER [machine.safetensors]   # anywhere: replayed; by a machine also predicted
python benchmarks/gpu/captures.py jobs jobs.json --device cpu      # a rehearsal, of small models

A job is `benchmarks/predict_jobs.py` train: 30 plain steps, then captured ones, then plain ones again. `cached` puts
half of the tables behind a cache (fused_uvm_caching), and `uvm` into host memory without one (fused_uvm); both are
predicted from the capture of the plan with all tables in device memory.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import predict

from recsmith.errors import RecSmithError
from recsmith.files import encode
from recsmith.jobs.launch import launch
from recsmith.plans import Plan, plan_from_raw, plan_to_raw
from recsmith.prediction.machine import load_machine
from recsmith.prediction.models import Model
from recsmith.prediction.predict import predict_graph
from recsmith.prediction.predictions import predict_capture
from recsmith.prediction.traces import load_capture

WIDE = {
    "dlrm_wide": Model(kind="dlrm", bottom=(2048, 1024), top=(4096, 4096, 2048, 1024)),
    "dlrm_dcn_wide": Model(kind="dlrm_dcn", bottom=(1024, 512), top=(2048, 2048, 1024), cross_layers=3,
                           cross_rank=1024),
    "mlp_wide": Model(kind="mlp", dense_features=2048, layers=(8192, 8192, 4096, 1024)),
    "transformer_wide": Model(kind="transformer", blocks=4, width=1024, heads=16, hidden=4096, sequence=32),
}  # fmt: skip
SMALL = {
    "dlrm": Model(kind="dlrm", bottom=(128,), top=(128, 64)),
    "dlrm_dcn": Model(kind="dlrm_dcn", bottom=(128,), top=(128, 64), cross_layers=2, cross_rank=64),
}
ORDER = (  # models, batches and plans, the most telling ones first
    ("dlrm_wide", 8192, "whole"), ("dlrm_wide", 8192, "uvm"), ("dlrm_wide", 8192, "cached"),
    ("dlrm", 8192, "whole"), ("dlrm", 8192, "uvm"), ("dlrm", 8192, "cached"),
    ("dlrm_dcn_wide", 8192, "whole"), ("dlrm_dcn_wide", 8192, "uvm"), ("mlp_wide", 8192, "whole"),
    ("dlrm_wide", 1024, "whole"), ("dlrm", 1024, "whole"), ("transformer_wide", 1024, "whole"),
    ("mlp_wide", 1024, "whole"), ("dlrm_dcn", 8192, "whole"), ("dlrm_dcn_wide", 1024, "whole"),
    ("dlrm_dcn", 1024, "whole"),
)  # fmt: skip
ON_A_GPU = predict.Sizes(WIDE | SMALL, tables=26, rows=500_000, width=128, cluster="h200")
REHEARSED = predict.Sizes(predict.MODELS | SMALL, tables=4, rows=5_000, width=16, cluster="cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["jobs", "measure", "table"])
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--seconds", type=float, default=80.0)
    options = parser.parse_args()
    if options.command == "jobs":
        write_jobs(options.paths[0], options.device)
    elif options.command == "measure":
        measure(options.paths[0], options.paths[1], options.seconds)
    else:
        table(options.paths[0], str(options.paths[1]) if options.paths[1:] else None)


def write_jobs(path: Path, device: str) -> None:
    sizes = ON_A_GPU if device == "cuda" else REHEARSED
    order = ORDER if device == "cuda" else (("dlrm", 64, "whole"), ("dlrm_dcn", 64, "whole"), ("mlp", 64, "whole"))
    jobs = {}
    for name, batch, how in order:
        plan = changed(predict.plan_of(sizes, batch, 1), how) if "dlrm" in name else None
        raw = plan_to_raw(replace(plan, digest="")) if plan else None
        jobs[f"{name}-{batch}-{how}"] = {"model": encode(sizes.models[name]), "plan": raw, "batch": batch,
                                         "plain": 30, "steps": 6}  # fmt: skip
    path.write_text(json.dumps(jobs))
    print(f"{path}: {len(jobs)} jobs")


def changed(plan: Plan, how: str) -> Plan:
    """The plan with half of its tables under another kernel."""
    if how == "whole":
        return plan
    kernel = {"cached": "fused_uvm_caching", "uvm": "fused_uvm"}[how]
    moved = plan.placements[: len(plan.placements) // 2]
    rest = plan.placements[len(moved) :]
    return replace(plan, placements=(*(replace(each, compute_kernel=kernel) for each in moved), *rest))


def measure(path: Path, home: Path, seconds: float) -> None:
    """Train and capture the jobs that the folder lacks."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "jobs.json").write_text(path.read_text())  # the table reads plans from it
    jobs = [
        words | {"folder": str((home / name).resolve()), "told": str((home / name / predict.AFTER).resolve())}
        for name, words in json.loads(path.read_text()).items()
        if not (home / name / "rank-0.about.json").exists()
    ]
    try:
        launch("predict_jobs:train_each", {"jobs": jobs}, ranks=1, timeout_s=seconds,
               on_message=lambda said: print(*said, flush=True))  # fmt: skip
    except RecSmithError as error:
        print(f"ended early: {str(error).splitlines()[0]}", flush=True)


def table(place: Path, machine: str | None) -> None:
    """Replayed steps beside measured ones, and steps under another plan predicted from a capture."""
    home = predict.unpacked(place)
    print("| job | measured | after the capture | replayed | off by | decided by |\n|---|---|---|---|---|---|")
    measured: dict[str, float] = {}
    for folder in sorted(each.parent for each in home.glob("*/rank-0.about.json")):
        try:
            captured = load_capture(folder)
            real, after = (
                predict.measured_of(captured, folder),
                json.loads((folder / predict.AFTER).read_text())["after_s"],
            )
            found = predict_graph(captured.graph)
        except (RecSmithError, OSError) as error:
            print(f"| {folder.name} | {error} |")
            continue
        decided = "device" if found.kernels_s > 0.9 * found.step_s else "host"
        print(f"| {folder.name} | {real * 1e3:.2f} ms | {after * 1e3:.2f} ms | {found.step_s * 1e3:.2f} ms "
              f"| {found.step_s / real - 1:+.1%} | {decided} |")  # fmt: skip
        measured[folder.name] = real
    jobs = home / "jobs.json"
    if machine is None or not jobs.exists():
        return
    known = load_machine(machine)
    print("\n| plan | measured | predicted from the plan in device memory | off by |\n|---|---|---|---|")
    for name, words in json.loads(jobs.read_text()).items():
        base, _, how = name.rpartition("-")
        if how == "whole" or name not in measured or f"{base}-whole" not in measured:
            continue
        try:
            plan = plan_from_raw(words["plan"], name)
            ((_, found),) = predict_capture(home / f"{base}-whole", plan=plan, machine=known)
        except RecSmithError as error:
            print(f"| {name} | {error} |")
            continue
        real = measured[name]
        print(f"| {name} | {real * 1e3:.2f} ms | {found.step_s * 1e3:.2f} ms | {found.step_s / real - 1:+.1%} |")


if __name__ == "__main__":
    main()
