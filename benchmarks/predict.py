"""Predicted steps beside measured ones: models of four kinds, four batch sizes, one and two ranks, on this CPU.

python benchmarks/predict.py measure FOLDER            # trains and captures each job, some seconds each; resumes
python benchmarks/predict.py measure FOLDER --gpu      # of a GPU's size, on one rank, all in one process
python benchmarks/predict.py table FOLDER [MACHINE]    # predicts them: replayed, own, shared, calibrated; and baselines

Columns of the table, relative to the step that was measured without the profiler. Below are geometric means: of the
ratio itself for the first two, which are costs, and of how far off it is for the others:

after       steps once the capture is over: what it leaves behind
watched     steps under the profiler (the graph's own step left out): what a capture costs while it is on
replay      the captured graph, walked
own         from the model's sizes, with the overheads of its captures at other batch sizes
shared      from its sizes, with the overheads of the other models' captures
calibrated  own, with kernels and collectives corrected by the capture of the smallest batch
kernels     the sum of predicted kernels and collectives
torchrec    TorchRec's estimate of the plan, which knows embeddings alone

`measure --again` captures every job once more, and keeps the capture whose steps were shorter without the profiler:
other programs on the machine only ever add to a time. With --others, models of other sizes, at which nobody looked
while the models of kernels were made. With --gpu, twelve jobs that keep a GPU busy. FOLDER may also hold
archives of captures, as samples/h200 does.
`batches` instead of `table` predicts each job from its capture at the middle batch, beside the measured step.
`kinds` instead of `table` sets each kind of kernel and collective of the captures beside its prediction.
`host` instead of `table` compares what the host thread itself works in a step, without its waits, with the thread's own
time: on a machine that other programs use, the clock measures them as well.
"""

import atexit
import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import recsmith
from recsmith.errors import RecSmithError, UsageError
from recsmith.files import encode
from recsmith.jobs.launch import launch
from recsmith.plans import Plan, plan_to_raw
from recsmith.prediction.captures import trace_name
from recsmith.prediction.graph import Graph
from recsmith.prediction.kernels import geometric_error
from recsmith.prediction.kernels.times import usual
from recsmith.prediction.kineto import load_trace
from recsmith.prediction.machine import Machine, load_machine
from recsmith.prediction.models import Model
from recsmith.prediction.models.build import model_graph
from recsmith.prediction.overheads import extract_overheads
from recsmith.prediction.predict import Prediction, predict_graph
from recsmith.prediction.predictions import calibrate, predict_capture
from recsmith.prediction.traces import Captured, load_capture

MODELS = {
    "dlrm": Model(kind="dlrm", bottom=(128, 64), top=(128, 64)),
    "dlrm_dcn": Model(kind="dlrm_dcn", bottom=(128, 64), top=(128, 64), cross_layers=2, cross_rank=32),
    "mlp": Model(kind="mlp", dense_features=256, layers=(512, 256, 128)),
    "transformer": Model(kind="transformer", blocks=2, width=64, heads=4, hidden=256, sequence=16),
}
OTHERS = {
    "dlrm_wide": Model(kind="dlrm", bottom=(256,), top=(256, 128, 64)),
    "dlrm_dcn_deep": Model(kind="dlrm_dcn", bottom=(256, 64), top=(256, 128), cross_layers=3, cross_rank=64),
    "mlp_wide": Model(kind="mlp", dense_features=64, layers=(1024, 512, 512, 128)),
    "transformer_wide": Model(kind="transformer", blocks=3, width=128, heads=8, hidden=512, sequence=8),
}
LARGE = {
    "dlrm": Model(kind="dlrm", bottom=(512, 256), top=(1024, 1024, 512, 256)),
    "dlrm_dcn": Model(kind="dlrm_dcn", bottom=(512, 256), top=(1024, 1024, 512, 256), cross_layers=3, cross_rank=512),
    "mlp": Model(kind="mlp", dense_features=512, layers=(2048, 2048, 1024, 512)),
    "transformer": Model(kind="transformer", blocks=2, width=256, heads=4, hidden=1024, sequence=16),
}
POOLING = 4
PLAIN, STEPS = 30, 6
COSTS = ("after", "watched")  # columns that are measured
CAPTURES = "captures"  # the folder in an archive, whose name begins like this
AFTER = "after.json"  # in a capture's folder: what the job said when it ended
Key = tuple[str, int, int]  # model, batch, ranks


@dataclass(frozen=True)
class Sizes:
    """Which jobs there are: models by name, samples a rank, ranks, and the tables of those models that have some."""

    models: dict[str, Model]
    batches: tuple[int, ...] = (128, 256, 512, 1024)
    ranks: tuple[int, ...] = (1, 2)
    tables: int = 8
    rows: int = 50_000
    width: int = 32
    cluster: str = "cpu"

    def jobs(self) -> list[Key]:
        """All jobs."""
        return [(name, batch, ranks) for ranks in self.ranks for batch in self.batches for name in self.models]


OF_A_GPU = Sizes(LARGE, batches=(1024, 4096, 16_384), ranks=(1,), tables=26, rows=500_000, width=128, cluster="h200")


def plan_of(sizes: Sizes, batch: int, ranks: int) -> Plan:
    tables = tuple(
        recsmith.Table(name=f"t{i}", num_embeddings=sizes.rows, embedding_dim=sizes.width,
                       features=(recsmith.Feature(name=f"t{i}", pooling_factor=POOLING),))
        for i in range(sizes.tables)
    )  # fmt: skip
    workload = recsmith.Workload(batch_size=batch, optimizer="sgd", tables=tables)
    space = recsmith.Space(types=("table_wise",), kernels=("fused",))
    return recsmith.plan(workload, f"{sizes.cluster}:{ranks}", cost_model="analytic", space=space, iterations=200).plan


def measure(home: Path, sizes: Sizes, *, again: bool) -> None:
    """Train and capture the jobs that the folder lacks: each in processes of its own, those of a GPU in one."""
    missing: list[tuple[Key, Path]] = []
    for name, batch, ranks in sizes.jobs():
        kept = home / f"{name}-{batch}-{ranks}"
        folder = kept.with_suffix(".again") if again else kept
        if not (folder / f"rank-{ranks - 1}.about.json").exists():
            missing.append(((name, batch, ranks), folder))
    if sizes is OF_A_GPU:
        launch("predict_jobs:train_each", {"jobs": [words_of(sizes, *each) for each in missing]}, ranks=1,
               on_message=lambda said: print(*said, flush=True))  # fmt: skip
        return
    for (name, batch, ranks), folder in missing:
        kept = folder.with_suffix("")
        launch("predict_jobs:train", words_of(sizes, (name, batch, ranks), folder), ranks=ranks, timeout_s=120)
        both = [load_capture(each).graph.measured_s or np.nan for each in dict.fromkeys((kept, folder))]
        print(name, batch, ranks, " and ".join(f"{each * 1e3:.2f} ms" for each in both), flush=True)
        if again:
            shutil.rmtree(kept if both[1] < both[0] else folder)
            if both[1] < both[0]:
                folder.rename(kept)


def words_of(sizes: Sizes, key: Key, folder: Path) -> dict[str, Any]:
    """What predict_jobs.train is told of a job."""
    name, batch, ranks = key
    plan = plan_to_raw(replace(plan_of(sizes, batch, ranks), digest="")) if "dlrm" in name else None
    return {"model": encode(sizes.models[name]), "plan": plan, "batch": batch, "folder": str(folder.resolve()),
            "plain": PLAIN, "steps": STEPS, "told": str((folder / AFTER).resolve())}  # fmt: skip


def step_of(found: Prediction) -> float:
    return found.step_s


def host_of(found: Prediction) -> float:
    """Seconds that the first rank's host thread works, without its waits."""
    return sum(event.seconds for event in found.walk.graph.ranks[0])


def table(home: Path, machine: Machine, sizes: Sizes, said: Callable[[Prediction], float]) -> None:
    graphs: dict[Key, Graph] = {}
    watched: dict[Key, float] = {}
    after: dict[Key, float] = {}
    hosts: dict[Key, float] = {}
    for key in sizes.jobs():
        folder = home / "-".join(map(str, key))
        try:
            captured = load_capture(folder)
            graphs[key] = replace(captured.graph, measured_s=measured_of(captured, folder))
            after[key] = json.loads((folder / AFTER).read_text())["after_s"]
            hosts[key] = captured.abouts[0].plain_host_s or np.nan
            steps = load_trace(folder / trace_name(0)).steps[1 : 1 + STEPS]
            watched[key] = usual([step.end - step.begin for step in steps])
        except (RecSmithError, OSError) as error:
            print(key, error)
    rows: dict[Key, dict[str, float]] = {}
    for key, graph in graphs.items():
        real = hosts[key] if said is host_of else graph.measured_s or np.nan
        rows[key] = {
            "measured": real,
            "after": after[key],
            "watched": watched[key],
            **_row(key, graphs, machine, sizes, said),
        }
    names = list(next(iter(rows.values())))
    print("model            batch ranks " + " ".join(f"{name:>10}" for name in names))
    for key, row in rows.items():
        cells = [
            f"{row['measured'] * 1e3:8.2f}ms",
            *(f"{row[name] / row['measured'] - 1:+9.1%} " for name in names[1:]),
        ]
        print(f"{key[0]:<16} {key[1]:>5} {key[2]:>5} " + " ".join(cells))
    for chosen, title in [(sizes.ranks, "all"), *(((each,), f"{each} rank") for each in sizes.ranks)]:
        some = [row for key, row in rows.items() if key[2] in chosen]
        cells = [_error(some, name) for name in names[1:]]
        print(f"{'geomean ' + title:<28} {'':>10} " + " ".join(cells))


def _error(rows: list[dict[str, float]], name: str) -> str:
    known = [row for row in rows if np.isfinite(row[name])]
    if not known:
        return f"{'-':>10}"
    said, real = (np.array([row[each] for row in known]) for each in (name, "measured"))
    off = np.exp(np.log(said / real).mean()) - 1 if name in COSTS else geometric_error(said, real)
    return f"{off:10.1%}"


def _row(
    key: Key, graphs: dict[Key, Graph], machine: Machine, sizes: Sizes, said: Callable[[Prediction], float]
) -> dict[str, float]:  # fmt: skip
    name, batch, ranks = key
    graph = graphs[key]
    plan = plan_of(sizes, batch, ranks) if "dlrm" in name else None

    def step(by: Machine) -> float:
        return said(predict_graph(model_graph(sizes.models[name], by, plan=plan, ranks=ranks, batch=batch)))

    def with_overheads_of(keys: list[Key]) -> Machine:
        return replace(machine, overheads=extract_overheads([graphs[each] for each in keys], "captures"))

    own = with_overheads_of([each for each in graphs if each[0] == name and each[2] == ranks and each[1] != batch])
    shared = with_overheads_of([each for each in graphs if each[0] != name])
    first = (name, sizes.batches[0], ranks)
    calibrated = step(calibrate(own, graphs[first], "capture").machine) if first != key and first in graphs else np.nan
    return {
        "replay": said(predict_graph(graph)),
        "own": step(own),
        "shared": step(shared),
        "calibrated": calibrated,
        "kernels": predict_graph(model_graph(sizes.models[name], own, plan=plan, ranks=ranks, batch=batch)).kernels_s,
        "torchrec": recsmith.simulate(plan, "torchrec").cost.total_s if plan else np.nan,
    }


def measured_of(captured: Captured, folder: Path) -> float:
    """Seconds of a step without the profiler; where a host alone timed a GPU's, those of steps that it waited for."""
    if captured.graph.on_gpu and captured.abouts[0].launch_s is None:
        return json.loads((folder / AFTER).read_text())["after_s"]
    return captured.graph.measured_s or np.nan


def batches(home: Path, machine: Machine, sizes: Sizes) -> None:
    """Each job at its batch sizes, predicted from the capture at the middle one, beside the measured step."""
    middle = sizes.batches[len(sizes.batches) // 2]
    print("| model | batch | measured | predicted | off by | what takes most of it |\n|---|---|---|---|---|---|")
    for name, batch, ranks in sizes.jobs():
        folder = home / f"{name}-{middle}-{ranks}"
        own = home / f"{name}-{batch}-{ranks}"
        real = measured_of(load_capture(own), own)
        try:
            ((_, found),) = predict_capture(folder, batches=[batch], machine=machine)
        except UsageError:  # without a lookup, nobody knows how many samples a step has
            continue
        most = next(iter(found.terms))
        print(f"| {name} | {batch:,} | {real * 1e3:.2f} ms | {found.step_s * 1e3:.2f} ms | "
              f"{found.step_s / real - 1:+.1%} | {most}: {found.terms[most] / found.step_s:.0%} |")  # fmt: skip


def kinds(home: Path, machine: Machine, sizes: Sizes) -> None:
    """Seconds of each kind of kernel and of each collective in all captures, and the machine's over them."""
    print("| model | batch | ranks | kind | measured | predicted / measured |\n|---|---|---|---|---|---|")
    for key in sizes.jobs():
        sums: dict[str, list[float]] = {}
        graph = load_capture(home / "-".join(map(str, key))).graph
        for _, event in graph.kernels():
            if event.kernel is not None:
                both = sums.setdefault(event.kernel.kind, [0.0, 0.0])
                both[0] += event.work_s or event.seconds
                both[1] += float(machine.kernels.seconds([event.kernel])[0])
        for made in graph.collectives:
            both = sums.setdefault(made.name, [0.0, 0.0])
            both[0] += made.seconds
            both[1] += machine.collective_s(made.name, made.bytes, len(made.ranks))
        for kind, (real, said) in sorted(sums.items(), key=lambda item: -item[1][0]):
            print(f"| {' | '.join(map(str, key))} | {kind} | {real * 1e3:.3f} ms | {said / max(real, 1e-12):.2f} |")


def unpacked(place: Path) -> Path:
    """The folder of captures, or that of all archives in a folder."""
    archives = sorted(place.glob(f"{CAPTURES}*.tar.gz"))
    if not archives:
        return place
    home = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, home)
    for each in archives:
        with tarfile.open(each) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 on
            archive.extractall(home)
    return home / CAPTURES


def main(words: list[str]) -> Any:
    sizes = OF_A_GPU if "--gpu" in words else Sizes(OTHERS if "--others" in words else MODELS)
    again = "--again" in words
    words = [word for word in words if word not in ("--others", "--again", "--gpu")]
    if words[:1] == ["measure"] and len(words) == 2:
        return measure(Path(words[1]), sizes, again=again)
    home = unpacked(Path(words[1])) if words[1:] else Path()
    if words[:1] == ["batches"] and len(words) == 3:
        return batches(home, load_machine(words[2]), sizes)
    if words[:1] == ["kinds"] and len(words) in (2, 3):
        return kinds(home, load_machine(words[2] if words[2:] else "cpu"), sizes)
    if words[:1] in (["table"], ["host"]) and len(words) in (2, 3):
        said = step_of if words[0] == "table" else host_of
        return table(home, load_machine(words[2] if words[2:] else "cpu"), sizes, said)
    sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
