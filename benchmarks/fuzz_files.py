"""Real files of every kind that RecSmith reads, and what reads them: the ground that benchmarks/fuzz.py damages."""

import gzip
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import fuzz_changes as change
from fuzz_changes import Change

TESTS = Path(__file__).resolve().parents[1] / "tests"
CLUSTER = "h100:2"
Read = Callable[[Path], object]


@dataclass(frozen=True)
class Class:
    """Files of one kind: a real file or folder, which of its files is damaged how, and what then reads it.

    changes: by the name of what is damaged inside of a folder, '' for a file itself; one is drawn each time. needs: a
    package that takes seconds to import, which is no part of reading.
    """

    real: Path
    changes: dict[str, Sequence[Change]]
    reads: Sequence[Read]
    needs: str = ""


TEXT = (change.bytes_changed, change.lines_changed, change.numbers_changed)
JSON = (change.json_changed, change.json_changed, change.bytes_changed)
JOURNAL = (change.json_lines_changed, change.json_lines_changed, change.lines_changed, change.bytes_changed)
PART = (change.parquet_changed, change.parquet_changed, change.bytes_changed)
BYTES = (change.bytes_changed,)
ARROW = (change.arrow_changed, change.bytes_changed, change.bytes_changed)
HEADER = (change.header_changed, change.header_changed, change.bytes_changed)
ARRAYS = (change.arrays_changed, change.arrays_changed, change.bytes_changed)
LOST: dict[str, Sequence[Change]] = {
    "rank-0.trace.json.gz": (change.events_lost,),
    "rank-1.trace.json.gz": (change.events_lost,),
}
WEIGHTS = (change.tensors_changed, change.tensors_changed, change.bytes_changed)
CAPTURE: dict[str, Sequence[Change]] = {
    "rank-0.trace.json.gz": JSON,
    "rank-1.graph.json": JSON,
    "rank-0.about.json": JSON,
}
CHECKPOINT: dict[str, Sequence[Change]] = {
    "checkpoints/step-*4/progress.json": JSON,
    "checkpoints/step-*4/random-0.json": JSON,
    "checkpoints/step-*4/plan.json": JSON,
    "checkpoints/step-*4/state/.metadata": BYTES,
    "checkpoints/step-*4/state/*.distcp": BYTES,
}
LOG_LINES = (*JOURNAL, change.numbers_changed)
SKETCH = (change.sketches_changed, change.sketches_changed, change.json_changed, change.bytes_changed)
STATE = (change.json_changed, change.json_changed, change.numbers_changed, change.bytes_changed)
ARRAY_CHECKPOINT: dict[str, Sequence[Change]] = {
    "*/checkpoints/step-*4/progress.json": STATE,
    "*/checkpoints/step-*4/plan.json": JSON,
    "*/checkpoints/step-*4/state/.metadata": BYTES,
    "*/checkpoints/step-*4/state/*.distcp": BYTES,
}
TORCHREC = "torchrec"
SMALL = ("--planner", "size_greedy", "--cost-model", "torchrec")


def command(*words: str) -> Read:
    """Runs a command of recsmith in this process; FILE is the damaged file."""

    def run(file: Path) -> None:
        from recsmith.cli import main

        sys.argv = ["recsmith", *(word.replace("FILE", str(file)) for word in words)]
        main()

    return run


def classes(home: Path) -> dict[str, Class]:
    """All kinds of files by name; the real ones are made below a folder, once."""
    sys.path.insert(0, str(TESTS))  # for the readers too
    if not (home / "made").exists():
        _make(home)
    workload = str(home / "workload.json")
    plans = [command("simulate", "FILE"), command("explain", "FILE"), command("diff", str(home / "plan.json"), "FILE")]
    plan_it = [command("plan", "FILE", "--cluster", CLUSTER, *SMALL)]
    fit = [
        command(
            "import",
            "FILE",
            "--workload",
            str(home / "workload.yaml"),
            "--cluster",
            CLUSTER,
            "--cost-model",
            "torchrec",
        )
    ]
    fit_log = [command("import", "FILE", "--cluster", "h100:4", "--cost-model", "torchrec")]
    journals = {"about.json": JSON, "journal.jsonl": JOURNAL}
    return {
        "workload-yaml": Class(home / "workload.yaml", {"": TEXT}, plan_it),
        "workload-json": Class(home / "workload.json", {"": JSON}, plan_it),
        "workload-csv": Class(home / "workload.csv", {"": TEXT},
                              [command("plan", "FILE", "--cluster", CLUSTER, "--batch-size", "64", *SMALL)]),
        "planner-log": Class(home / "job.log", {"": TEXT}, [*plan_it, *fit_log]),
        "cluster": Class(home / "cluster.json", {"": JSON}, [command("plan", workload, "--cluster", "FILE", *SMALL)]),
        "constraints": Class(home / "rules.json", {"": JSON},
                             [command("plan", workload, "--cluster", CLUSTER, "--constraints", "FILE", *SMALL)]),
        "capacity": Class(home / "capacity.json", {"": STATE}, [partial(read_capacity, home)]),
        "plan": Class(home / "plan.json", {"": JSON}, plans),
        "dumped-plan": Class(home / "dump.json", {"": JSON}, fit),
        "printed-plan": Class(home / "printed.txt", {"": TEXT}, fit),
        "compute-journal": Class(home / "compute", journals, [*_folder_reads(), read_compute]),
        "compute-parts": Class(home / "compute-parts", {PARTS: PART, "about.json": JSON},
                               [*_folder_reads(), read_compute]),
        "comm-journal": Class(home / "comm", journals, [*_folder_reads(), read_comm]),
        "comm-parts": Class(home / "comm-parts", {PARTS: PART, "about.json": JSON}, [*_folder_reads(), read_comm]),
        "bench-run": Class(home / "bench", {"settings.json": JSON, "journal.jsonl": JOURNAL}, [read_bench]),
        "cost-weights": Class(home / "cost.safetensors", {"": WEIGHTS},
                              [command("plan", workload, "--cluster", "cpu:2", "--planner", "size_greedy",
                                       "--cost-model", "neural:FILE")]),
        "comm-weights": Class(home / "comm.safetensors", {"": WEIGHTS}, [read_comm_weights]),
        "policy": Class(home / "policy.safetensors", {"": WEIGHTS}, _policy_reads(workload, "dreamshard")),
        "autoshard-policy": Class(home / "autoshard.safetensors", {"": WEIGHTS}, _policy_reads(workload, "autoshard")),
        "checkpoint": Class(home / "checkpoint", {".metadata": BYTES, "*.distcp": BYTES, "recsmith.json": JSON},
                            [read_checkpoint]),
        "capture": Class(home / "trace", CAPTURE, [command("predict", "FILE")]),
        "device-capture": Class(home / "device-trace", CAPTURE, [command("predict", "FILE")]),
        "model": Class(home / "model.yaml", {"": TEXT}, [command("predict", "FILE", "--ranks", "2")]),
        "kernel-times": Class(home / "kernels.json", {"": JSON}, [read_kernel_times]),
        "dataset": Class(home / "dataset", {PARTS: PART, "_manifest.json": JSON},
                         [command("data", "check", "FILE"), command("data", "inspect", "FILE"),
                          command("data", "workload", "FILE"), read_clustered]),
        "unfinished-dataset": Class(home / "unfinished", {PARTS: PART, "_unfinished.json": JSON},
                                    [partial(go_on_converting, home / "dataset.yaml")]),
        "dataset-spec": Class(home / "arrow-data", {"spec.yaml": TEXT}, _spec_reads()),
        "arrow-files": Class(home / "arrow-data", {"c.feather": ARROW, "c.arrow": ARROW}, _spec_reads()),
        "criteo": Class(home / "criteo", {"day_0": TEXT}, _spec_reads()),
        "criteo-index": Class(home / "criteo", {"days.npz": ARRAYS}, _spec_reads()),
        "movielens": Class(home / "movielens", {"ratings.csv": TEXT, "movies.csv": TEXT}, _spec_reads()),
        "run": Class(home / "run.yaml", {"": TEXT}, [command("train", "FILE", "--dry-run")], TORCHREC),
        "training-checkpoint": Class(home / "trained", CHECKPOINT, [go_on_training], TORCHREC),
        "trained-model": Class(home / "trained" / "model", {"card.json": JSON, "weights.safetensors": HEADER},
                               [read_model, evaluate_model], TORCHREC),
        "id-maps": Class(home / "maps.safetensors", {"": HEADER}, [read_maps]),
        "capture-lost-events": Class(home / "trace", LOST, [command("predict", "FILE")]),
        "device-capture-lost-events": Class(home / "device-trace", LOST, [command("predict", "FILE")]),
        "replayed-arm": Class(home / "replay", {"incremental-0/measured.json": JSON}, [read_replay], TORCHREC),
        "decision": Class(home / "update.json", {"": JSON}, [read_update]),
        "array": Class(home / "array.json", {"": JSON}, [read_array]),
        "stream": Class(home / "online.json", {"": JSON}, [read_stream]),
        "log": Class(home / "watched", {"log.jsonl": LOG_LINES}, [command("watch", "FILE"), read_log], TORCHREC),
        "sketches": Class(home / "watched", {"watch/ids-*.json": SKETCH},
                          [command("watch", "FILE", "--ids"), merge_sketches, read_live_workload]),
        "watched-checkpoint": Class(home / "watched", {"checkpoints/step-*4/progress.json": STATE},
                                    [partial(go_on_with, WATCHED)], TORCHREC),
        "checkpoint-in-periods": Class(home / "periods", {"checkpoints/step-*4/progress.json": STATE},
                                       [partial(go_on_with, IN_PERIODS)], TORCHREC),
        "array-checkpoint": Class(home / "members", ARRAY_CHECKPOINT, [partial(go_on_with, ARRAY)], TORCHREC),
        "sparse-copy": Class(home / "copy", {"card.json": JSON, "weights.safetensors": HEADER},
                             [read_model], TORCHREC),
        "place-of-servers": Class(home / "remote.json", {"": JSON}, [read_place], TORCHREC),
        "trainings": Class(home / "trainings.jsonl", {"": JOURNAL}, [read_trainings], TORCHREC),
        "feed-status": Class(home / "fed", {"feed/rank-*.json": JSON}, [command("feed", "status", "FILE")]),
        "kept-plans": Class(home / "kept", {"clicks.kept.json": JSON, "clicks.draft.json": JSON, "clicks.json": JSON},
                            [read_kept]),
        "reshard-journal": Class(home / "resharding", {"recsmith-journal.jsonl": JOURNAL}, [go_on_resharding]),
    }  # fmt: skip


def _policy_reads(workload: str, planner: Any) -> list[Read]:
    """A policy is read as one of its planner, and plans."""
    from recsmith.learning.policies.learn import KINDS

    words = ("--cost-model", "torchrec", "--planner", f"{planner}:FILE?samples=2")
    return [KINDS[planner].load, command("plan", workload, "--cluster", CLUSTER, *words)]


PARTS = "part-*.parquet"


def _folder_reads() -> list[Read]:
    return [command("measure", "show", "FILE"), command("measure", "fold", "FILE"), go_on]


def go_on(folder: Path) -> None:
    """Measure a little more into the folder, as a second run does."""
    kind = "comm" if folder.name.startswith("comm") else "compute"
    words = ["--ranks", "2"] if kind == "comm" else []
    command("measure", kind, "--hardware", "simulated:h100", "--samples", "65", *words, "-o", "FILE")(folder)


def read_compute(folder: Path) -> None:
    """What training reads of compute measurements."""
    from recsmith.learning.costs import read_groups

    read_groups([folder])


def read_comm(folder: Path) -> None:
    """What training reads of all-to-alls, and the model that measuring fits."""
    from recsmith.learning.comm import read_exchanges
    from recsmith.measuring.comm import fit_alpha_beta

    fit_alpha_beta(folder)
    read_exchanges([folder])


def read_bench(folder: Path) -> None:
    """What a benchmark that goes on reads of its folder."""
    from recsmith.bench.journal import load_settings, open_run_store

    with open_run_store(folder, load_settings(folder)):
        pass


def read_checkpoint(folder: Path) -> None:
    """What resharding reads of a checkpoint before it writes anything."""
    from support.exactness import cpu_cluster
    from support.resharding import turned, whole

    from recsmith.adapters.checkpoints import read_checkpoint as read
    from recsmith.adapters.reshard.layout import check_fingerprint
    from recsmith.adapters.reshard.moves import plan_moves

    check_fingerprint(folder, whole())
    plan_moves(read(folder), whole(), turned(cpu_cluster(2, 2), 0), None, 0)


def go_on_resharding(folder: Path) -> None:
    """What a run that goes on reads of an unfinished output."""
    from recsmith.adapters.reshard.partial import Partial

    Partial(folder, "of").resume()


def read_clustered(folder: Path) -> None:
    """What sorting a dataset by session reads of it."""
    command("data", "cluster", "FILE", "-o", f"{folder}-clustered", "--memory", "16MiB")(folder)


def go_on_converting(spec: Path, folder: Path) -> None:
    """Convert the same data into the folder again, as after a kill."""
    command("data", "convert", str(spec), "-o", "FILE", "--file-samples", "4096")(folder)


def _spec_reads() -> list[Read]:
    """Check, inspect and count the dataset of a folder's spec.yaml, whose paths hold there."""

    def read(verb: str, folder: Path) -> None:
        os.chdir(folder)
        command("data", verb, "FILE")(folder / "spec.yaml")

    return [partial(read, verb) for verb in ("check", "inspect", "workload")]


@contextmanager
def one_rank() -> Iterator[None]:
    """This process as the only rank of a job, whose threads end with it."""
    import torch.distributed as dist

    alone = {"RANK": 0, "LOCAL_RANK": 0, "GROUP_RANK": 0, "WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1, "GROUP_WORLD_SIZE": 1}
    os.environ.update({name: str(value) for name, value in alone.items()})
    store = dist.HashStore()  # pyright: ignore[reportPrivateImportUsage]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def train(output: Path, steps: int, words: dict[str, Any] | None = None) -> None:
    """Train a small run in this process, from the newest checkpoint of its output. words: over those of RUN."""
    from recsmith.training.rank import train_on_rank

    with one_rank():
        train_on_rank(RUN | {"steps": steps, **(words or {}), "output": str(output)})


def go_on_training(folder: Path) -> None:
    """Go on from a checkpoint."""
    train(folder, 6)


def go_on_with(words: dict[str, Any], folder: Path) -> None:
    """Go on from a checkpoint of a run that has more."""
    train(folder, 6, words)


def read_log(folder: Path) -> None:
    """What a job that goes on, and benchmarks, read of a log."""
    from recsmith.jobs.log_lines import LOG, logged, logged_number
    from recsmith.training.job.log import RunLog
    from recsmith.training.results.watched import slow_trainer_of_run

    slow_trainer_of_run(str(folder))
    for line in logged(folder / LOG, "train"):
        for name in ("samples_per_s", "data_s", "forward_s", "backward_s"):
            logged_number(folder / LOG, line, name)
    RunLog(folder, 0, tensorboard=False, step=2).close()


def merge_sketches(folder: Path) -> None:
    """Merge the sketches of a run with sound ones, and ask them all that is asked."""
    import numpy as np

    from recsmith.streaming.sketch_files import read_sketches
    from recsmith.streaming.sketches import IdSketch

    for sketch in read_sketches(folder, 4)[1].values():
        sound = IdSketch()
        sound.count(2, 3)
        sound.update(np.array([1, 1, 7]), np.array([2, 1], np.int32))
        sketch.new_share(sound)
        sound.merge(sketch)
        print(sound.distinct, sound.frequent(9), sound.share_in(np.array([1, 7])), sound.length(0.5))


def read_capacity(home: Path, file: Path) -> None:
    """What a capacity says of a plan, as a report takes it."""
    from recsmith.plans import load_plan
    from recsmith.reports.capacity import capacity_notes, load_capacity

    capacity_notes(load_plan(home / "plan.json"), load_capacity(file))


def read_live_workload(folder: Path) -> None:
    """The workload of a run as its ids are read now."""
    from recsmith.plans import load_plan
    from recsmith.streaming.live_workload import live_workload
    from recsmith.streaming.sketch_files import read_sketches

    live_workload(load_plan(folder / "plan.json").workload, read_sketches(folder, 4)[1], source="the run")


def read_place(file: Path) -> None:
    """What one more trainer reads of where the servers are."""
    from recsmith.training.systems.remote.hosting import read_place as read

    read(file)


def read_kept(folder: Path) -> None:
    """A folder of plans as the page shows it: what is damaged is told, and hides nothing else."""
    from recsmith.errors import CorruptFile
    from recsmith.web.serving.app import dumped
    from recsmith.web.serving.folder import PlanFolder
    from recsmith.web.serving.settings import Settings
    from recsmith.web.serving.views import plan_summary

    kept = PlanFolder(folder, Settings(token="x"), plan_summary)
    found = kept.listing()
    print("".join(map(dumped, (*found.plans, *found.unread))))
    said = [each.why for each in found.unread] + [note for plan in found.plans for note in plan.notes]
    drafts = [kept.draft(plan.id).version for plan in found.plans]
    if said or "damaged" in drafts or not found.plans:
        raise CorruptFile(f"'{folder}': {'; '.join(said) or 'a draft is damaged'}")


def read_trainings(file: Path) -> None:
    """The trainings of a curve of compression, and the curve."""
    from recsmith.training.systems.stored import curve as compression_curve

    compression_curve.read_trainings(file)


def read_model(folder: Path) -> None:
    """Load a trained model, and predict with it."""
    from recsmith.training import load_model

    load_model(folder)({"user": [[3], [0]], "words": [[1, 2], []]}, [[0.5, 1.0], [0.0, 0.0]])


def evaluate_model(folder: Path) -> None:
    """Score a trained model in this process, as `recsmith evaluate` does on each rank."""
    from recsmith.files import encode
    from recsmith.training.job.card import read_card
    from recsmith.training.results.evaluation import evaluate_on_rank

    model = encode(read_card(folder).model)
    with one_rank():
        run = RUN | {"output": str(folder.parent), "model": model, "data": DATA | {"test": DATA["train"]}}
        evaluate_on_rank(run, str(folder))


def _stream() -> Any:
    """A run in periods, whose update is chosen by a replay."""
    from recsmith.training.run import run_from_raw

    periods = {"samples": 8, "update": {"name": "auto", "replayed": 8}}
    return run_from_raw(RUN | {"output": "stream", "data": DATA | {"periods": periods}}, "the run")


def _replay(folder: Path, arms: Any, train: Any) -> Any:
    from recsmith.training.systems.periods.arms import replay

    return replay(_stream(), arms, (0,), folder, train, lambda found: found())


def read_replay(folder: Path) -> None:
    """Arms that a replay takes from its folder, and the one that pays."""
    from recsmith.reports.online import online_lines
    from recsmith.training.results.arms import judged

    arms = {"incremental": "incremental", "window": {"name": "window", "periods": 3}}
    print(*online_lines(judged(_replay(folder, arms, None), 3)), sep="\n")


def read_update(file: Path) -> None:
    """What a job that goes on reads of the update that was chosen."""
    from recsmith.training.systems.periods.deciding import read_decision
    from recsmith.training.systems.periods.updates import update_of

    read_decision(file, update_of({"name": "auto", "replayed": 8}))


def read_stream(file: Path) -> None:
    """What the page reads of how a stream is best learned, and shows."""
    from recsmith.files import encode
    from recsmith.web.serving.sessions import KeptStream
    from recsmith.web.serving.settings import Settings
    from recsmith.web.serving.uploads import read_upload
    from recsmith.web.serving.views import stream_view

    held: Any = read_upload(file.read_bytes(), file.name, Settings(token="none")).held
    if hasattr(held, "replays"):
        encode(stream_view("stream-0", KeptStream(file.name, held)))


def read_array(file: Path) -> None:
    """What an array that goes on reads of its members."""
    from recsmith.training.run import run_from_raw
    from recsmith.training.systems.arrays.members import read_ended
    from recsmith.training.systems.arrays.settings import RunArray

    members: dict[str, tuple[str, ...]] = {"sound": (), "broken": ("seed=1",)}
    run = replace(run_from_raw(RUN | {"output": "array"}, "the run"), array=RunArray(members=members))
    (file.parent / "array").mkdir(exist_ok=True)
    shutil.copy(file, file.parent / "array" / "array.json")
    read_ended(file.parent / "array", run)


def read_maps(file: Path) -> None:
    """Maps of ids to the rows of smaller tables."""
    from recsmith.embeddings import load_maps

    load_maps(file)


def read_comm_weights(file: Path) -> None:
    """A learned model of all-to-alls."""
    from recsmith.costs.neural_comm_files import load_comm_model

    load_comm_model(file)


def read_kernel_times(file: Path) -> None:
    """The kernel times of a file, and the curves of its collectives."""
    from recsmith.learning.kernels import curves_of
    from recsmith.prediction.kernels.times import load_times

    curves_of(load_times(file))


def _hundred_bytes(file: BinaryIO) -> None:
    file.write(bytes(100))


def _checkpoint(home: Path) -> None:
    """A checkpoint that PyTorch wrote, and an unfinished one of resharding."""
    from support.resharding import whole, write_whole

    from recsmith.adapters.checkpoints import Chunk
    from recsmith.adapters.reshard.layout import tie_checkpoint
    from recsmith.adapters.reshard.partial import Partial

    write_whole(home / "checkpoint")
    tie_checkpoint(home / "checkpoint", whole())
    (home / "resharding").mkdir()
    partial = Partial(home / "resharding", "of")
    partial.resume()
    for number in range(8):
        place = Chunk(offsets=(number, 0), sizes=(1, 4), file=f"__{number % 2}_0.distcp", start=0, length=0)
        partial.add("model.t0.weight", number, place, _hundred_bytes)
    partial.commit()


def _make_capacity(home: Path) -> None:
    """What a stream asks of a table of the plan, with a forecast."""
    from recsmith.data import GeneratedFeature, GeneratorSpec, open_dataset
    from recsmith.plans import load_plan
    from recsmith.reports.capacity import capacity_to_raw
    from recsmith.streaming.capacity import Asked, StreamReader

    name = load_plan(home / "plan.json").workload.tables[0].features[0].name
    spec = GeneratorSpec(num_samples=9000, features=(GeneratedFeature(name=name, num_embeddings=900, zipf=1.0),))
    reader = StreamReader(open_dataset(spec), Asked(samples=1500, policies=("lru",)))
    reader.read()
    (home / "capacity.json").write_text(json.dumps(capacity_to_raw(reader.capacity("spec.yaml"), 68)))


def _make(home: Path) -> None:
    """Write a real file of every kind, as RecSmith itself writes it where it does."""
    from support.exchanged import write_comm_model
    from support.learned import write_model
    from support.planner_logs import bare, prefixed

    from recsmith.learning.policies.learn import KINDS

    home.mkdir(parents=True, exist_ok=True)
    (home / "workload.yaml").write_text(YAML)
    (home / "workload.csv").write_text(CSV)
    (home / "cluster.json").write_text(json.dumps(_cluster()))
    (home / "dump.json").write_text(json.dumps(DUMP))
    (home / "printed.txt").write_text(PRINTED)
    (home / "job.log").write_text(prefixed("[rank0]:INFO 10:00:01 ")(bare("mixed")))
    _run("workload", "sample", "--tables", "6", "--max-bytes", "1GiB", "--batch-size", "64",
         "-o", str(home / "workload.json"))  # fmt: skip
    _run("plan", str(home / "workload.json"), "--cluster", CLUSTER, *SMALL, "-o", str(home / "plan.json"))
    _make_capacity(home)
    (home / "rules.json").write_text(json.dumps(RULES).replace("PLAN", str(home / "plan.json")))
    _measure(home)
    write_model(home / "cost.safetensors")
    write_comm_model(home / "comm.safetensors")
    shutil.copy(KINDS["dreamshard"].find("simulated-h100"), home / "policy.safetensors")
    shutil.copy(KINDS["autoshard"].find("simulated-h100"), home / "autoshard.safetensors")
    _bench(home / "bench")
    _checkpoint(home)
    _captures(home)
    _dataset(home)
    _arrow(home / "arrow-data")
    _criteo(home / "criteo")
    _movielens(home / "movielens")
    (home / "run.yaml").write_text(json.dumps(RUN | {"output": "trained"}, indent=1))
    train(home / "trained", 4)
    _maps(home / "maps.safetensors")
    _replayed(home / "replay", home / "update.json")
    ended = {"broken": {"step": 8, "because": "its loss is not finite"}}
    (home / "array.json").write_text(json.dumps({"schema": "recsmith/array/1", "ended": ended}))
    _kept(home / "kept", home / "plan.json")
    train(home / "watched", 4, WATCHED)
    train(home / "periods", 4, IN_PERIODS)
    train(home / "members", 4, ARRAY)
    _told(home)
    (home / "made").touch()


def _kept(folder: Path, plan: Path) -> None:
    """A plan in a folder, with a card and a draft."""
    from recsmith.plans.files import load_plan
    from recsmith.web.serving.edits import DraftChange, EditStep, ProblemChanges
    from recsmith.web.serving.folder import PlanFolder
    from recsmith.web.serving.settings import Settings
    from recsmith.web.serving.views import kept_plan, plan_summary

    kept = PlanFolder(folder, Settings(token="x"), plan_summary)
    key = kept.put(kept_plan(load_plan(plan), "clicks", "planner auto", question={"planner": "auto", "seed": 0}))
    kept.keep_draft(key, DraftChange(steps=(EditStep(changes=ProblemChanges(batch_size=32)),), done=1))


def _told(home: Path) -> None:
    """A copy of a model, and what jobs tell in small files."""
    from dataclasses import asdict

    from recsmith.feeding.status import FeedStatus, status_file, write_status
    from recsmith.files import encode
    from recsmith.training.job.export import export_changed
    from recsmith.training.systems.remote.calls import ServerPlace
    from recsmith.training.systems.sparse.settings import Sparsified, SparsitySettings

    made = Sparsified(settings=SparsitySettings(), samples=9, layers={"over": 0.5}, weights=8, zeros=4,
                      loss_full=0.5, loss=0.6)  # fmt: skip
    export_changed(home / "trained" / "model", home / "copy", {}, {"sparse": encode(made)})
    place = ServerPlace(backend="sockets", address="/tmp/job", job="job", key="0" * 32, servers=2)
    (home / "remote.json").write_text(
        json.dumps({"run": {}, "processes": "/none", "place": asdict(place), "meet": "127.0.0.1:29600"})
    )
    point = {"method": "qr", "factor": 4.0, "seed": 1, "auc": 0.7, "weight_bytes": 100, "map_bytes": 0}
    (home / "trainings.jsonl").write_text(2 * f"{json.dumps(point)}\n")
    fed = FeedStatus(rank=0, ranks=1, process="host 7", engine="local", written=1.7e9, epoch=0, used=64,
                     num_samples=512, samples=64, seconds=9.0, samples_per_s=7.0, waiting=0.1, waited_s=0.9,
                     ahead=16, windows=3, lost=0,
                     ended=False, workers=())  # fmt: skip
    write_status(status_file(home / "fed", 0), fed)


def _measure(home: Path) -> None:
    """Folders of simulated measurements, as journals and folded."""
    import recsmith.measuring.folder as folder

    for kind, words in (("compute", ()), ("comm", ("--ranks", "2"))):
        base = ("measure", kind, "--hardware", "simulated:h100", *words, "--samples", "60", "-o")
        _run(*base, str(home / f"{kind}-parts"))
        kept, folder.has_pyarrow = folder.has_pyarrow, lambda: False
        _run(*base, str(home / kind))
        folder.has_pyarrow = kept


def _captures(home: Path) -> None:
    """Captures of two ranks, of a CPU and of a GPU job, with traces that are not compressed; a model; kernel times."""
    from support.synthetic_traces import write_capture, write_device_capture

    for folder in (write_capture(home / "trace", [0.0, 1.0]), write_device_capture(home / "device-trace", [6.0, 7.0])):
        for trace in folder.glob("*.gz"):
            trace.write_bytes(gzip.decompress(trace.read_bytes()))
    (home / "model.yaml").write_text("schema: recsmith/model/1\nkind: mlp\nlayers: [64, 32]\n")
    size = [{"name": "all_reduce", "ranks": 2, "bytes": 4.0**i, "seconds": 1e-4 + 1e-9 * 4.0**i} for i in range(3, 13)]
    kernels = [{"kind": "copy", "shape": [4.0, 4.0, 1.0, 0.0, 0.0], "seconds": 1e-6}]
    (home / "kernels.json").write_text(json.dumps({"schema": "recsmith/kernel-times/1", "device": "d", "versions": "v",
                                                   "seed": 0, "kernels": kernels, "collectives": size}))  # fmt: skip


def _dataset(home: Path) -> None:
    """A dataset, and one that a kill left unfinished after its first file."""
    from recsmith.data import open_dataset
    from recsmith.data.converting import FileLayout, KeyColumns
    from recsmith.data.converting.convert import checked_conversion
    from recsmith.data.converting.tables import Blocks
    from recsmith.data.parquet.write import save_conversion

    (home / "dataset.yaml").write_text(DATASET)
    for name in ("dataset", "unfinished"):
        _run("data", "convert", str(home / "dataset.yaml"), "--file-samples", "4096", "-o", str(home / name))
    blocks = Blocks(open_dataset(home / "dataset.yaml"), KeyColumns(), FileLayout(file_samples=4096))
    save_conversion(home / "unfinished", checked_conversion("convert", blocks))
    for name in ("_manifest.json", "part-00001.parquet"):
        (home / "unfinished" / name).unlink()


def _arrow(folder: Path) -> None:
    """A dataset of a Feather file, packed, and of an Arrow file, plain."""
    import pyarrow as pa
    import pyarrow.feather as feather

    folder.mkdir()
    (folder / "spec.yaml").write_text(ARROW_SPEC)
    rows = range(200)
    columns: dict[str, tuple[Any, Any]] = {
        "row": (pa.int64(), list(rows)),
        "user_id": (pa.int64(), [row * 37 % 1001 for row in rows]),
        "words": (pa.list_(pa.int64()), [[row % 7, row % 11][: row % 3] for row in rows]),
        "m": (pa.map_(pa.string(), pa.int64()), [[("a", row % 5)] if row % 4 else [] for row in rows]),
        "price": (pa.float32(), [row / 4 for row in rows]),
        "clicked": (pa.float32(), [float(row % 2) for row in rows]),
    }
    table = pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})
    feather.write_feather(table, str(folder / "c.feather"), compression="zstd")
    feather.write_feather(table, str(folder / "c.arrow"), compression="uncompressed")


def _criteo(folder: Path) -> None:
    """A file of a day, and the index that reading it once has written."""
    folder.mkdir()
    lines = [
        "\t".join(
            [
                str(row % 2),
                *(str(row * 3 % 17) if row % 5 else "" for _ in range(13)),
                *(f"{(row * 7919 + at) % 2**32:08x}" for at in range(26)),
            ]
        )
        for row in range(300)
    ]
    (folder / "day_0").write_text("\n".join(lines) + "\n")
    (folder / "spec.yaml").write_text(CRITEO_SPEC)
    kept = Path.cwd()
    os.chdir(folder)
    _run("data", "check", str(folder / "spec.yaml"))
    os.chdir(kept)
    if not (folder / "days.npz").exists():
        raise RuntimeError("reading Criteo's file wrote no index")


def _movielens(folder: Path) -> None:
    folder.mkdir()
    (folder / "spec.yaml").write_text("format: movielens\npath: .\nsplit: all\n")
    movies = [f'{10 * movie},"Movie, The ({1900 + movie})",Drama|Action' for movie in range(1, 20)]
    (folder / "movies.csv").write_text("\n".join(["movieId,title,genres", *movies]) + "\n")
    rated = [f"{1 + row % 9},{10 + row * 70 % 190},{row % 10 / 2 + 0.5},{10**6 + row}" for row in range(150)]
    (folder / "ratings.csv").write_text("\n".join(["userId,movieId,rating,timestamp", *rated]) + "\n")


def _maps(file: Path) -> None:
    import numpy as np

    from recsmith.embeddings import IdMap, save_maps

    save_maps({name: IdMap(numbers=np.arange(50, dtype=np.int32) % 7) for name in ("user", "words")}, file)


def _replayed(folder: Path, decision: Path) -> None:
    """What two arms reached, by logs of a training, and what was decided."""
    from recsmith.reports.online import online_to_raw
    from recsmith.training.job.log import LOG
    from recsmith.training.results.arms import judged
    from recsmith.training.systems.periods.arms import ARMS

    def log(run: Any) -> dict[str, bool]:
        lines = [{"event": "period", "period": at, "ahead": ahead, "logloss": 0.5 + 0.01 * at, "ne": 0.9 + 0.01 * ahead}
                 for at in range(8) for ahead in (1, 2)]  # fmt: skip
        Path(run.output).mkdir(parents=True)
        (Path(run.output) / LOG).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return {"complete": True}

    _replay(folder, {name: ARMS[name] for name in ("incremental", "window")}, log)
    decided = {"arm": "window", "update": ARMS["window"], "because": "window has the least loss of the next period"}
    decision.write_text(json.dumps(decided))
    found = judged(_replay(folder, {name: ARMS[name] for name in ("incremental", "window")}, None), 3)
    (folder.parent / "online.json").write_text(json.dumps(online_to_raw(found)))


def _bench(path: Path) -> None:
    from support.benched import SETTINGS

    from recsmith.bench.sharding import bench_sharding

    bench_sharding(SETTINGS, path)


def _run(*words: str) -> None:
    """A command that must succeed, without its output."""
    kept = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        command(*words)(Path())
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"recsmith {' '.join(words)} ended with {end.code}") from None
    finally:
        os.dup2(kept, 1)


def _cluster() -> dict[str, Any]:
    from recsmith.clusters import cluster_to_raw, load_cluster

    return cluster_to_raw(load_cluster(CLUSTER)) | {"hbm_bytes": [80 * 2**30] * 2, "reserve_bytes": 2**30}


YAML = """schema: recsmith/workload/1
batch_size: 64  # samples per device and step
optimizer: rowwise_adagrad
comm_dtype: fp16
tables:
  - name: item_id
    num_embeddings: 40000
    embedding_dim: 128
    pooling: sum
    collection: sparse.ebc
    access: {zipf: 0.8}
    features:
      - {name: clicked, pooling_factor: 12.5}
      - {name: bought, pooling_factor: 0.3, num_poolings: 1, weighted: false}
  - {name: country, num_embeddings: 250, embedding_dim: 16, pooling_factor: 1}
  - {name: history, num_embeddings: 5e3, embedding_dim: 64, pooling_factor: 20, pooling: none, data_type: fp16}
"""
DATASET = """format: generator
num_samples: 8192
dense: 2
features:
  - {name: user, num_embeddings: 90}
  - {name: words, num_embeddings: 400, pooling_factor: 2.5, lengths: poisson}
sessions: {size: 4, duplication: 0.9}
"""
DATA: dict[str, Any] = {
    "train": {
        "format": "generator", "num_samples": 64, "dense": 2,
        "features": [{"name": "user", "num_embeddings": 90},
                     {"name": "words", "num_embeddings": 40, "pooling_factor": 2, "lengths": "poisson"}],
    },
    "batch_size": 8,
}  # fmt: skip
RUN: dict[str, Any] = {
    "schema": "recsmith/run/1", "data": DATA, "model": {"embedding_dim": 4, "bottom": [8], "top": [8]},
    "ranks": 1, "steps": 4, "checkpoint": {"every": 2}, "metrics": {"every": 2},
}  # fmt: skip
WATCHED: dict[str, Any] = {"watch": {"every": 1, "ids": 16, "sketch_every": 2}}
IN_PERIODS: dict[str, Any] = {"data": DATA | {"periods": {"samples": 16, "update": "future_gradient"}}}
ARRAY: dict[str, Any] = {"array": {"members": {"a": [], "b": ["seed=1"]}, "together": "always"}}
ARROW_SPEC = """schema: recsmith/dataset/1
format: parquet
paths: [c.feather, c.arrow]
features:
  - {name: user, column: user_id, num_embeddings: 1000, ids: modulo}
  - {name: words, num_embeddings: 500}
  - {name: mm, column: m, key: a, num_embeddings: 10}
dense: [price]
labels: [clicked]
sample_id: row
transforms:
  - {op: hash, feature: user, num_embeddings: 100}
  - {op: n_gram, feature: words, length: 2, num_embeddings: 500, into: pairs}
  - {op: clip, dense: price, least: 0, most: 50}
wrong: skip
max_wrong: 100
"""
CRITEO_SPEC = """format: criteo
paths: [day_0]
cardinalities: kaggle
max_rows: 1000
index: days.npz
"""
CSV = """name,num_embeddings,embedding_dim,pooling_factor,num_poolings,pooling,data_type
item_id,40000,128,12.5,1,sum,fp32
country,250,16,1,1,mean,fp32
history,5000,64,20,0.5,none,fp16
"""
RULES = {
    "schema": "recsmith/constraints/1",
    "rules": [
        {"tables": "*", "sharding_types": ["table_wise", "row_wise", "column_wise"], "min_width": 4},
        {"tables": "*", "compute_kernels": ["fused", "dense"], "cache_factors": [0.1, 0.3]},
        {"tables": "table_0005", "widths": [64, 128], "max_shards": 2, "hosts": [0]},
        {"tables": "table_0001", "ranks": [0, 1], "not_ranks": [1]},
        {"tables": "table_0002", "pin": {"sharding_type": "table_wise", "ranks": [0]}},
    ],
    "pin_to": [{"plan": "PLAN", "tables": ["table_000[34]"], "but": ["table_0003"]}],
    "together": [["table_0001", "table_0002"], {"tables": ["table_0000", "table_0003"], "per": "host"}],
    "apart": [["table_0002", "table_0004"]],
    "per_rank": [{"max_tables": 5}, {"tables": ["table_*"], "max_shards": 8}],
}
DUMP = {
    "plan": {
        "sparse.ebc": {
            "item_id": {
                "sharding_type": "column_wise", "compute_kernel": "fused", "ranks": [0, 1],
                "shards": [
                    {"shard_sizes": [40000, 64], "shard_offsets": [0, 0], "placement": "rank:0/cuda:0"},
                    {"shard_sizes": [40000, 64], "shard_offsets": [0, 64], "placement": "rank:1/cuda:1"},
                ],
            },
            "country": {"sharding_type": "table_wise", "compute_kernel": "fused", "ranks": [0]},
            "history": {"sharding_type": "row_wise", "compute_kernel": "fused", "ranks": [0, 1]},
        }
    }
}  # fmt: skip
PRINTED = """[default0]:module: sparse.ebc
[default0]:
[default0]:param   | sharding type | compute kernel | ranks
[default0]:------- | ------------- | -------------- | ------
[default0]:item_id | column_wise   | fused          | [0, 1]
[default0]:country | table_wise    | fused          | [0]
[default0]:history | row_wise      | fused          | [0, 1]
[default0]:
[default0]:param   | shard offsets | shard sizes | placement
[default0]:------- | ------------- | ----------- | -------------
[default0]:item_id | [0, 0]        | [40000, 64] | rank:0/cuda:0
[default0]:item_id | [0, 64]       | [40000, 64] | rank:1/cuda:1
[default0]:country | [0, 0]        | [250, 16]   | rank:0/cuda:0
[default0]:history | [0, 0]        | [2500, 64]  | rank:0/cuda:0
[default0]:history | [2500, 0]     | [2500, 64]  | rank:1/cuda:1
"""
