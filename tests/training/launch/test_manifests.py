"""What starts a run on a cluster: SLURM's script runs, Kubernetes' objects are by their schemas, TorchX starts it."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

pytest.importorskip("torchrec")

from support.cases import table, workload

from recsmith.cli.app import app
from recsmith.errors import UsageError
from recsmith.planning.simulate import price
from recsmith.plans import Placement, load_plan, save_plan
from recsmith.training import Checkpointing, Run, RunData, load_run, save_run
from recsmith.training.launch.manifests import JobPlace, kubernetes_objects, shape_of, slurm_script, torchx_command

DATA = {"format": "generator", "seed": 1, "features": [{"name": "a", "num_embeddings": 300}], "num_samples": 256}
REAL = [pytest.param(False, id="stand-in"), pytest.param(True, id="real", marks=pytest.mark.soak)]  # torchrun
STAND_INS = {
    "scontrol": 'if [ "$1" = show ]; then echo 127.0.0.1; else echo "$@" >> "$SCONTROL_LOG"; fi',
    "srun": 'for node in $(seq $SLURM_NNODES); do "$@" & done; status=0\n'
    "for job in $(jobs -p); do wait $job || status=$?; done; exit $status",
}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Two steps that need no file."""
    return Run(data=RunData(train=DATA, batch_size=16), output=str(tmp_path / "out"), steps=2)


def stand_ins(folder: Path) -> str:
    """A PATH on which SLURM's commands are programs of this test, which start what they are given on this machine."""
    folder.mkdir()
    for name, body in STAND_INS.items():
        file = folder / name
        file.write_text(f"#!/bin/bash\n{body}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])


def stand_in_torchrun(folder: Path, model: Path) -> None:
    """A torchrun that notes its words on a line, and writes the model."""
    file = folder / "torchrun"
    file.write_text(f"""#!/bin/bash\nmkdir -p '{model}'; (printf '%s\\0' "$@"; echo) >> '{folder}/words'\n""")
    file.chmod(0o755)


def asked_of_torchrun(folder: Path) -> Any:
    """What torchrun read, the same on each machine; and that the command which its ranks run is one."""
    from torch.distributed.run import get_args_parser

    first, *others = (folder / "words").read_text().splitlines()
    assert all(each == first for each in others)
    read = get_args_parser().parse_args(first.split("\0")[:-1])
    assert (read.module, read.training_script, len(others) + 1) == (True, "recsmith", int(read.nnodes))
    tried = CliRunner().invoke(app, [*read.training_script_args, "--dry-run"])
    assert tried.exit_code == 0, tried.output
    return read


def words_of(script: str) -> list[str]:
    """What a script asks sbatch for."""
    return [line.split()[1] for line in script.splitlines() if line.startswith("#SBATCH ")]


def elastic(run: Run) -> tuple[Run, JobPlace]:
    """The run on two or three machines of two ranks on CPUs."""
    made = replace(run, checkpoint=Checkpointing(every=1), data=replace(run.data, global_batch_size=24, batch_size=1))
    return made, JobPlace(nodes=3, fewest=2, per_node=2, gpu=False, image="i", volumes=(("c", "/"),))


def test_a_range_of_machines_has_an_agent_on_each(run: Run, tmp_path: Path):
    made, place = elastic(run)
    words = ["train", "/run.json", "--hosts", "2..3", "--max-restarts", "3", "--set", "ranks=2"]
    script = slurm_script(made, "/run.json", (), place)
    assert {"--nodes=2-3", "--no-kill"} <= set(words_of(script))
    assert f"srun --no-kill --kill-on-bad-exit=0 recsmith {' '.join(words)} &" in script
    assert "torchrun" not in script
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0

    _, runtime, job = kubernetes_objects(made, place)
    trainer = job["spec"]["trainer"]
    assert [*trainer["command"], *trainer["args"]] == ["recsmith", "train", "/etc/recsmith/run.json", *words[2:]]
    assert trainer["numNodes"] == 3
    assert "podGroupPolicy" not in runtime["spec"]
    jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert [each["template"]["spec"]["backoffLimit"] for each in jobs] == [9]
    with pytest.raises(UsageError, match="TorchX starts torchrun there; take --for slurm"):
        torchx_command("/run.json", (), place)
    with pytest.raises(UsageError, match="has 3 machines and trains on with 4"):
        replace(place, fewest=4)

    save_run(made, tmp_path / "run.json")
    asked = ["launch", str(tmp_path / "run.json"), "--for", "slurm", "--per-node", "2", "--cpu", "--hosts", "2..3"]
    assert "--hosts 2..3" in CliRunner().invoke(app, asked).output
    both = CliRunner().invoke(app, [*asked, "--nodes", "3"])
    assert "leave --nodes out" in f"{both.output}{both.exception}"
    save_run(run, tmp_path / "run.json")
    assert "changes the number of ranks" in f"{(bad := CliRunner().invoke(app, asked)).output}{bad.exception}"


# --- SLURM ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("real", REAL)
def test_the_script_of_slurm_trains_on_two_machines_and_waits_again_until_the_model_is_there(
    real: bool, run: Run, tmp_path: Path
):
    save_run(run, tmp_path / "run.yaml")
    made = CliRunner().invoke(
        app, ["launch", str(tmp_path / "run.yaml"), "--for", "slurm", "--nodes", "2", "--per-node", "1", "--cpu",
              "--time", "2h", "-o", str(tmp_path / "train.sbatch")], catch_exceptions=False,
    )  # fmt: skip
    assert made.exit_code == 0
    script = (tmp_path / "train.sbatch").read_text()
    assert {"--nodes=2", "--ntasks-per-node=1", "--time=2:00:00", "--signal=B:TERM@60", "--requeue"} <= set(
        words_of(script)
    )
    log = tmp_path / "scontrol"
    environment = {
        **os.environ, "PATH": stand_ins(tmp_path / "bin"), "SLURM_NNODES": "2", "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NODELIST": "here", "GLOO_SOCKET_IFNAME": "lo", "SCONTROL_LOG": str(log),
    }  # fmt: skip
    if not real:
        stand_in_torchrun(tmp_path / "bin", tmp_path / "out" / "model")
    done = subprocess.run(
        ["bash", str(tmp_path / "train.sbatch")], env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "out" / "model").is_dir()
    assert not log.exists()
    if not real:
        asked = asked_of_torchrun(tmp_path / "bin")
        assert (asked.nnodes, asked.nproc_per_node) == ("2", "1")
        assert asked.rdzv_endpoint == f"127.0.0.1:{20_000 + os.getpid() % 20_000}"
        return
    assert load_plan(tmp_path / "out" / "plan.json").cluster.world_size == 2


@pytest.mark.parametrize(
    ("torchrun", "ended", "status", "again"),
    [
        ("trap 'echo saved; exit 1' TERM; echo up; while :; do sleep 0.05; done", True, 0, True),
        ("exit 0", False, 0, True),
        ("exit 7", False, 7, False),
    ],
)
def test_a_job_that_was_asked_to_end_waits_in_the_queue_again_and_one_that_failed_does_not(
    run: Run, tmp_path: Path, torchrun: str, ended: bool, status: int, again: bool
):
    script = slurm_script(run, "run.yaml", (), JobPlace(gpu=False))
    path = stand_ins(tmp_path / "bin")
    (tmp_path / "bin" / "srun").write_text('#!/bin/bash\nexec "$@"\n')
    (tmp_path / "bin" / "torchrun").write_text(f"#!/bin/bash\n{torchrun}\n")
    (tmp_path / "bin" / "torchrun").chmod(0o755)
    log = tmp_path / "scontrol"
    environment = {**os.environ, "PATH": path, "SLURM_NNODES": "1", "SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "here",
                   "SCONTROL_LOG": str(log)}  # fmt: skip
    with subprocess.Popen(["bash", "-c", script], env=environment, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        if ended:
            assert started.stdout.readline() == "up\n"
            started.terminate()
            assert started.stdout.readline() == "saved\n"
        assert started.wait(60) == status
    assert log.exists() == again
    assert not again or log.read_text() == "requeue 77\n"


def test_settings_and_paths_with_blanks_and_quotes_stay_words(run: Run):
    odd = replace(run, output="/out of 'here'; rm -rf x")
    script = slurm_script(odd, "my run.yaml", ("data.batch_size=8", "output=$(id)"), JobPlace(queue="gpus"))
    assert "-m recsmith train 'my run.yaml' --set data.batch_size=8 --set 'output=$(id)'" in script
    assert """[ ! -e '/out of '"'"'here'"'"'; rm -rf x'/model ]""" in script
    assert "--partition=gpus" in words_of(script)


# --- Kubernetes -------------------------------------------------------------------------------------------------------

PLACE = JobPlace(nodes=4, per_node=8, image="here/recsmith:1", volumes=(("clicks", "/data"),), memory_bytes=2**39)


@pytest.mark.parametrize("place", [PLACE, replace(PLACE, fewest=3)])
def test_objects_of_kubernetes_are_by_the_schemas_of_kubeflow(place: JobPlace, run: Run):
    """What a model of the schema reads and writes again is the same: no field is unknown, none is missing."""
    models: Any = pytest.importorskip("kubeflow_trainer_api.models")
    config, runtime, job = kubernetes_objects(replace(run, output="/data/out"), place)
    for model, raw in (
        (models.TrainerV1alpha1TrainJob, job), (models.TrainerV1alpha1TrainingRuntime, runtime),
    ):  # fmt: skip
        read = model.from_dict(raw)
        assert read.to_dict() == raw
    pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert models.IoK8sApiCoreV1PodTemplateSpec.from_dict(pod).to_dict() == pod
    assert config["metadata"]["name"] == job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]


def test_the_job_is_the_run_on_its_machines(run: Run, tmp_path: Path):
    save_run(replace(run, output="/data/out"), tmp_path / "run.yaml")
    words = ["launch", str(tmp_path / "run.yaml"), "--for", "kubernetes", "--nodes", "4", "--per-node", "8", "--image",
             "here/recsmith:1", "--volume", "clicks=/data", "--memory", "512GiB", "--time", "24h", "--grace", "120s",
             "--set", "steps=7"]  # fmt: skip
    printed = CliRunner().invoke(app, words, catch_exceptions=False).stdout
    config, runtime, job = yaml.safe_load_all(printed)
    kept = json.loads(config["data"]["run.json"])
    assert (kept["steps"], kept["output"]) == (7, "/data/out")
    trainer, pod = job["spec"]["trainer"], runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (4, 8)
    assert trainer["resourcesPerNode"]["limits"] == {"memory": "524288Mi", "nvidia.com/gpu": "8"}
    assert trainer["args"] == ["-m", "recsmith", "train", "/etc/recsmith/run.json"]
    assert pod["template"]["spec"]["terminationGracePeriodSeconds"] == 120
    assert job["spec"]["activeDeadlineSeconds"] == 86_400
    assert "coscheduling" in runtime["spec"]["podGroupPolicy"]
    in_queue = CliRunner().invoke(app, [*words, "--queue", "team"], catch_exceptions=False).stdout
    _, other, queued = yaml.safe_load_all(in_queue)
    assert queued["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "team"}
    assert "podGroupPolicy" not in other["spec"]


# --- TorchX -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("real", REAL)
def test_torchx_trains_two_ranks_here(real: bool, run: Run, tmp_path: Path):
    pytest.importorskip("torchx")
    save_run(run, tmp_path / "run.yaml")
    words = torchx_command(str(tmp_path / "run.yaml"), ("steps=3",), JobPlace(per_node=2, gpu=False, restarts=0))
    environment = {**os.environ, "PATH": stand_ins(tmp_path / "bin"), "GLOO_SOCKET_IFNAME": "lo"}
    if not real:
        stand_in_torchrun(tmp_path / "bin", tmp_path / "out" / "model")
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "out" / "model").is_dir()
    if not real:
        asked = asked_of_torchrun(tmp_path / "bin")
        assert (asked.nnodes, asked.nproc_per_node, asked.training_script_args[-2:]) == ("1", "2", ["--set", "steps=3"])
        return
    assert json.loads((tmp_path / "out" / "run.json").read_text())["steps"] == 3


# --- what is refused --------------------------------------------------------------------------------------------------


def test_machines_are_those_of_the_plan(run: Run, tmp_path: Path):
    tables = workload(table("a", 300, 8))
    where = [Placement(table="a", sharding_type="table_wise", compute_kernel="fused", ranks=(3,))]
    save_plan(price(tables, "h100:2x2", where), tmp_path / "plan.json")
    planned = replace(run, plan=str(tmp_path / "plan.json"))
    assert shape_of(planned, None, None) == (2, 2)
    with pytest.raises(UsageError, match=r"is of 2 machines with 2 devices each, and the job is to have 3 with 2"):
        shape_of(planned, 3, None)
    assert shape_of(replace(run, ranks=4), 2, None) == (2, 4)
    with pytest.raises(UsageError, match="nobody says how many ranks a machine has"):
        shape_of(run, 2, None)


REFUSED: dict[str, tuple[Callable[[Run], object], str]] = {
    "no image": (lambda run: kubernetes_objects(run, JobPlace()), "name it: --image"),
    "no volume": (lambda run: kubernetes_objects(run, replace(PLACE, volumes=())), "`output` lies on no volume"),
    "beside the volume": (lambda run: kubernetes_objects(replace(run, output="/database"), PLACE), "mounted: /data"),
    "plan elsewhere": (
        lambda run: kubernetes_objects(replace(run, output="/data/out", plan="plan.json"), PLACE), "of `plan` lies on"),
    "name": (lambda _: JobPlace(name="My Job"), "name is 'My Job'"),
    "queue": (lambda _: JobPlace(queue="a\n#SBATCH --wrap=x"), "is no name of a queue"),
    "grace": (lambda _: JobPlace(grace_s=10), "torchrun gives ranks 30 s"),
    "time": (lambda _: JobPlace(time_s=30.0), "60 s of it are for the end"),
    "relative volume": (lambda _: JobPlace(volumes=(("a", "data"),)), "give the whole path"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_what_could_not_start_is_refused(kind: str, run: Run):
    make, words = REFUSED[kind]
    with pytest.raises(UsageError, match=words):
        make(run)


def test_a_file_of_another_kind_is_kept(run: Run, tmp_path: Path):
    save_run(run, tmp_path / "run.yaml")
    (tmp_path / "notes").write_text("mine")
    words = ["launch", str(tmp_path / "run.yaml"), "--for", "torchx", "--per-node", "1", "--cpu", "-o"]
    refused = CliRunner().invoke(app, [*words, str(tmp_path / "notes")])
    assert isinstance(refused.exception, UsageError)
    assert (tmp_path / "notes").read_text() == "mine"
    assert isinstance(CliRunner().invoke(app, [*words, str(tmp_path / "run.yaml")]).exception, UsageError)
    assert load_run(tmp_path / "run.yaml") == run
