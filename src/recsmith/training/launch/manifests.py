"""Files that start a run on a cluster: a SLURM script, Kubernetes objects, or TorchX's command. Without torch.

Each of them starts one torchrun on each machine, which starts a rank for each device. A job that is asked to end saves
at the end of its step and ends, and continues from there when it is started again: at the time limit, when a machine is
taken away, and after a rank has failed. torchrun gives ranks 30 seconds for that.
"""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, Literal, cast, get_args

from recsmith._types import noun
from recsmith.errors import UsageError, check_rules
from recsmith.files import Raw
from recsmith.plans import load_plan
from recsmith.training.run import MADE_HERE, Run, run_to_raw

System = Literal["slurm", "kubernetes", "torchx"]
SYSTEMS: tuple[System, ...] = get_args(System)
NAME = r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?"  # a Kubernetes name, with room for the suffixes that Kubernetes adds
WORD = r"[A-Za-z0-9][A-Za-z0-9._-]*"  # name of a queue or a claim, written into the script and the objects unquoted
RANKS_END_S = 30  # seconds for ranks after SIGTERM (torch 2.13, elastic/multiprocessing/api.py)
PLACES = {"path", "paths", "folder", "output", "capture", "start_from", "file"}  # keys of a run that name files
MOUNTED, RUN_FILE = "/etc/recsmith", "run.json"  # where the run file is in a pod
MEGABYTE = 2**20
CONFIG_BYTES = 900_000  # largest run in a ConfigMap, which holds 1 MiB


@noun
class JobPlace:
    """Where a run trains, in addition to what the run and its plan say.

    name: name of the job. nodes: number of machines. fewest: smallest number of machines that training continues with
    after losing some; None: all are needed. per_node: ranks on each machine, one for each device. gpu: whether these
    devices are GPUs. time_s: time limit of the job in seconds; None: no limit. grace_s: seconds from SIGTERM to the
    end. restarts: how often failed ranks are restarted. memory_bytes, cpus: memory and cores of a machine; None: the
    cluster's default. image: container image. volumes: (claim, path) of storage that is mounted on every machine.
    queue: queue of the cluster, whose jobs start with all machines or not at all.
    """

    name: str = "recsmith"
    nodes: int = 1
    per_node: int = 1
    gpu: bool = True
    time_s: float | None = None
    grace_s: int = 60
    restarts: int = 3
    memory_bytes: int | None = None
    cpus: int | None = None
    image: str | None = None
    volumes: tuple[tuple[str, str], ...] = ()
    queue: str | None = None
    fewest: int | None = None

    def __post_init__(self) -> None:
        check_rules(
            None if re.fullmatch(NAME, self.name)
            else f"name is '{self.name}'; a name has small letters, digits and dashes, at most 52, a letter first",
            None if self.nodes >= 1 and self.per_node >= 1
            else f"the job has {self.nodes} machines of {self.per_node} ranks; both are at least 1",
            None if self.fewest is None or 1 <= self.fewest <= self.nodes
            else f"the job has {self.nodes} machines and trains on with {self.fewest}; that is 1 to {self.nodes}",
            None if self.grace_s > RANKS_END_S
            else f"grace is {self.grace_s} s, and torchrun gives ranks {RANKS_END_S} s to save; give more than these",
            None if self.restarts >= 0 else f"restarts is {self.restarts}; it is 0 or more",
            None if self.time_s is None or self.time_s > self.grace_s
            else f"the time limit is {self.time_s:g} s, and {self.grace_s} s of it are for the end; give more",
            *(None if each is None or re.fullmatch(WORD, each)
              else f"'{each}' is no name of a queue or of storage; it has letters, digits, dots and dashes"
              for each in (self.queue, *(claim for claim, _ in self.volumes))),
            *(None if PurePosixPath(path).is_absolute()
              else f"volume {claim} is mounted at '{path}'; give the whole path, from / on"
              for claim, path in self.volumes),
        )  # fmt: skip


def shape_of(run: Run, nodes: int | None, per_node: int | None) -> tuple[int, int]:
    """(machines, ranks on each) of a run: from its plan, or as asked.

    Raises:
        UsageError: they differ from the plan's, or are not given anywhere.
    """
    if run.plan not in MADE_HERE:
        cluster = load_plan(run.plan).cluster
        ranks = cluster.job_local_world_size
        hosts = cluster.job_world_size // ranks
        if (nodes or hosts, per_node or ranks) != (hosts, ranks):
            raise UsageError(
                f"plan '{run.plan}' is of {hosts} machines with {ranks} devices each, and the job is to have "
                f"{nodes or hosts} with {per_node or ranks}; leave --nodes and --per-node out, or plan for those"
            )
        return hosts, ranks
    if per_node is None and run.ranks is None:
        raise UsageError("nobody says how many ranks a machine has; give --per-node 8, or a plan made for the cluster")
    return nodes or 1, per_node or run.ranks or 1


def words_on_hosts(run: Run, run_file: str, settings: tuple[str, ...], place: JobPlace) -> list[str]:
    """The command of each machine for a job that survives the loss of one: its own agent, which starts its ranks."""
    ranks = [] if place.gpu or run.ranks == place.per_node else [f"ranks={place.per_node}"]
    more = [word for each in (*settings, *ranks) for word in ("--set", each)]
    return ["recsmith", "train", run_file, "--hosts", f"{place.fewest}..{place.nodes}",
            "--max-restarts", str(place.restarts), *more]  # fmt: skip


def slurm_script(run: Run, run_file: str, settings: tuple[str, ...], place: JobPlace) -> str:
    """A script for sbatch. run_file: its path on the machines. settings: 'key=value' settings applied to the run."""
    per_node = [f"--gpus-per-node={place.per_node}"] if place.gpu else []
    cpus = place.cpus or (None if place.gpu else place.per_node)
    asked = [
        f"--job-name={place.name}", f"--nodes={_range(place)}", "--ntasks-per-node=1", *per_node,
        *([] if cpus is None else [f"--cpus-per-task={cpus}"]),
        *([] if place.memory_bytes is None else [f"--mem={-(-place.memory_bytes // MEGABYTE)}M"]),
        *([] if place.time_s is None else [f"--time={_minutes(place.time_s)}"]),
        *([] if place.queue is None else [f"--partition={place.queue}"]),
        f"--signal=B:TERM@{place.grace_s}", "--requeue", "--open-mode=append",
        *([] if place.fewest is None else ["--no-kill"]),
    ]  # fmt: skip
    words = ["recsmith", "train", run_file, *(word for each in settings for word in ("--set", each))]
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {each}" for each in asked),
        f"# {_range(place)} x {place.per_node} ranks, by `recsmith launch`; a job that was ended goes on where it was",
        "set -eu",
        *_on_machines(words, words_on_hosts(run, run_file, settings, place), place),
        "# at the limit of time the ranks are asked to end and save; a job without a model waits in the queue again",
        "job=$! ended= status=0",
        """trap 'ended=1; kill -TERM "$job"' TERM""",
        'wait "$job" || status=$?',
        '[ -z "$ended" ] || { status=0; wait "$job" || status=$?; }  # the first wait ended with the signal',
        f"[ ! -e {shlex.quote(run.output)}/model ] || exit 0",
        '[ -n "$ended" ] || [ "$status" = 0 ] || exit "$status"  # a run that fails would fail again',
        'scontrol requeue "$SLURM_JOB_ID"',
    ]
    return "\n".join(lines) + "\n"


def _on_machines(words: list[str], on_hosts: list[str], place: JobPlace) -> list[str]:
    """Lines that start the job: one torchrun on each machine, or one agent on each if machines may be lost."""
    if place.fewest is not None:
        return [f"srun --no-kill --kill-on-bad-exit=0 {shlex.join(on_hosts)} &"]
    return [
        'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "port=$((20000 + SLURM_JOB_ID % 20000))  # jobs that share a machine meet at different ones",
        f'srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node {place.per_node} --rdzv-backend c10d \\',
        f'    --rdzv-endpoint "$head:$port" --rdzv-id "$SLURM_JOB_ID" --max-restarts {place.restarts} \\',
        f"    -m {shlex.join(words)} &",
    ]


def _range(place: JobPlace) -> str:
    """The number of machines for sbatch: one number, or the fewest and the most."""
    return f"{place.nodes}" if place.fewest in (None, place.nodes) else f"{place.fewest}-{place.nodes}"


def torchx_command(
    run_file: str, settings: tuple[str, ...], place: JobPlace, scheduler: str = "local_cwd"
) -> list[str]:  # fmt: skip
    """The words of a `torchx run` of the component in torchx_component.py; UsageError if machines may be lost."""
    if place.fewest is not None:
        raise UsageError(
            "--hosts starts an agent on each machine, and TorchX starts torchrun there; take --for slurm or "
            "--for kubernetes, or leave --hosts out"
        )
    sizes = ["--gpu", str(place.per_node)] if place.gpu else []
    sizes += [] if place.cpus is None else ["--cpu", str(place.cpus)]
    sizes += [] if place.memory_bytes is None else ["--memMB", str(-(-place.memory_bytes // MEGABYTE))]
    sizes += [] if place.image is None else ["--image", place.image]
    return [
        "torchx", "run", "--scheduler", scheduler, "recsmith.train", "--run", run_file,
        "-j", f"{place.nodes}x{place.per_node}", "--name", place.name, "--max_retries", str(place.restarts), *sizes,
        *(["--", *settings] if settings else []),
    ]  # fmt: skip


# --- Kubernetes -------------------------------------------------------------------------------------------------------


def kubernetes_objects(run: Run, place: JobPlace) -> list[Raw]:
    """Objects for `kubectl apply` and Kubeflow Trainer (2.0 and later): the run, how it is trained, and the job.

    Raises:
        UsageError: no image is given, a file of the run is not on a volume, or the run is too large.
    """
    if place.image is None:
        raise UsageError("containers need an image with RecSmith, torch, FBGEMM and TorchRec; name it: --image IMAGE")
    _check_on_volumes(run, place)
    text = json.dumps(run_to_raw(run), indent=1)
    if len(text.encode()) > CONFIG_BYTES:
        raise UsageError(
            f"the run has {len(text.encode()):,} bytes, and a ConfigMap {CONFIG_BYTES:,}; put long lists into files"
        )
    config: Raw = {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": place.name}, "data": {RUN_FILE: text},
    }  # fmt: skip
    words = ["torchrun", "-m", "recsmith", "train", f"{MOUNTED}/{RUN_FILE}"]
    if place.fewest is not None:
        words = words_on_hosts(run, f"{MOUNTED}/{RUN_FILE}", (), place)
    return [config, _runtime(place), _train_job(place, words)]


def _runtime(place: JobPlace) -> Raw:
    """How jobs of the run are trained: pods, storage, restarts, and gang scheduling."""
    mounts = [{"name": "run", "mountPath": MOUNTED}, {"name": "shm", "mountPath": "/dev/shm"}]
    mounts += [{"name": f"volume-{at}", "mountPath": path} for at, (_, path) in enumerate(place.volumes)]
    volumes: list[Raw] = [
        {"name": "run", "configMap": {"name": place.name}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        *({"name": f"volume-{at}", "persistentVolumeClaim": {"claimName": claim}}
          for at, (claim, _) in enumerate(place.volumes)),
    ]  # fmt: skip
    pod: Raw = {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": place.grace_s, "volumes": volumes,
        "containers": [{"name": "node", "image": place.image, "volumeMounts": mounts}],
    }  # fmt: skip
    job: Raw = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"backoffLimit": 0 if place.fewest is None else pods_lost(place), "template": {"spec": pod}},
        },
    }
    alone = place.queue is not None or place.fewest is not None  # a range of machines needs no gang scheduling
    gang: Raw = {} if alone else {"podGroupPolicy": {"coscheduling": {"scheduleTimeoutSeconds": 600}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime", "metadata": {"name": place.name},
        "spec": {
            "mlPolicy": {"numNodes": place.nodes, "torch": {}},
            **gang,
            "template": {"spec": {"failurePolicy": {"maxRestarts": place.restarts}, "replicatedJobs": [job]}},
        },
    }  # fmt: skip


def pods_lost(place: JobPlace) -> int:
    """How many pods are replaced one by one after they end, before all pods are restarted."""
    return place.nodes * max(1, place.restarts)


def _train_job(place: JobPlace, words: list[str]) -> Raw:
    sizes: Raw = {} if place.cpus is None else {"cpu": str(place.cpus)}
    if place.memory_bytes is not None:
        sizes["memory"] = f"{-(-place.memory_bytes // MEGABYTE)}Mi"
    if place.gpu:
        sizes["nvidia.com/gpu"] = str(place.per_node)
    trainer: Raw = {
        "image": place.image, "numNodes": place.nodes, "numProcPerNode": place.per_node,
        "command": words[:1], "args": words[1:],
        **({"resourcesPerNode": {"requests": sizes, "limits": sizes}} if sizes else {}),
    }  # fmt: skip
    labels: Raw = {} if place.queue is None else {"labels": {"kueue.x-k8s.io/queue-name": place.queue}}
    limit: Raw = {} if place.time_s is None else {"activeDeadlineSeconds": int(place.time_s)}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"name": place.name, **labels},
        "spec": {
            "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": place.name},
            "trainer": trainer, **limit,
        },
    }  # fmt: skip


def _check_on_volumes(run: Run, place: JobPlace) -> None:
    raw = run_to_raw(run)
    named = [*_named(raw), *([] if run.plan in MADE_HERE else [("plan", run.plan)])]
    mounted = [PurePosixPath(path) for _, path in place.volumes]
    for key, path in named:
        if "://" not in path and not any(PurePosixPath(path).is_relative_to(each) for each in mounted):
            there = ", ".join(map(str, mounted)) or "none"
            raise UsageError(
                f"'{path}' of `{key}` lies on no volume of the pods (mounted: {there}); add --volume CLAIM=PATH, and "
                "name files by the paths that pods see"
            )


def _named(raw: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """(key, path) of each file that a run names."""
    if isinstance(raw, dict):
        for name, value in cast(dict[str, Any], raw).items():
            yield from _named(value, name)
    elif isinstance(raw, list):
        for value in cast(list[Any], raw):
            yield from _named(value, key)
    elif isinstance(raw, str) and key in PLACES:
        yield key, raw


def _minutes(seconds: float) -> str:
    """A time limit in sbatch's format: hours, minutes and seconds."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"
