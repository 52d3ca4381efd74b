"""What a run needs of this machine: each thing that lacks is one sentence, before anything starts."""

import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.systems import needing

from recsmith.errors import MissingExtra, RecSmithError, UsageError
from recsmith.training import (
    Checkpointing,
    DenseOptimizer,
    Run,
    RunData,
    RunMetrics,
    RunModel,
    RunOptimizers,
    save_run,
    train,
)
from recsmith.training.launch import prerequisites
from recsmith.training.launch.launching import dry_run
from recsmith.training.launch.prerequisites import check_arguments, check_machine

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]


def a_run(**words: object) -> Run:
    return Run(**{"data": RunData(train="nowhere"), "output": "out", **words})  # type: ignore[arg-type]


def test_tensorboard_that_is_not_installed_is_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("recsmith.jobs.log.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"metrics.tensorboard needs TensorBoard: pip install"):
        train(a_run(metrics=RunMetrics(tensorboard=True)))


def test_the_process_that_starts_ranks_imports_no_pytorch(tmp_path: Path):
    """Which takes it three CPU seconds and some hundred MB; ranks have it."""
    save_run(a_run(ranks=2, output=str(tmp_path)), tmp_path / "run.json")
    program = (
        "import sys\nfrom recsmith.training.launch.prerequisites import check_run\n"
        "from recsmith.training.launch.ranks import local_hosts, local_ranks\n"
        "from recsmith.training.run import load_run\n"
        "run = load_run(sys.argv[1])\ncheck_run(run, local_ranks(run))\nassert local_hosts(run, 2) == 1\n"
        "print('torch' in sys.modules, 'torchrec' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "run.json")], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"], done.stderr


def test_gpus_that_are_asked_for_and_not_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    check_machine(a_run(device="cuda"), ranks=1)
    check_machine(a_run(), ranks=2)
    with pytest.raises(UsageError, match=r"2 ranks on this machine need a GPU each, and PyTorch sees 1 of them"):
        check_machine(a_run(device="cuda"), ranks=2)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(UsageError, match=r"device cuda, 3 ranks .* sees none"):
        train(a_run(device="cuda", ranks=3))


@pytest.mark.parametrize("launcher", ["torchrun", "srun"])
def test_a_port_that_another_program_has(launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    names = {
        "torchrun": {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"},
        "srun": {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"},
    }[launcher]
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.setenv(name, "")  # that what a job sets ends with this test
        monkeypatch.delenv(name)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for name, value in {**names, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(RecSmithError, match=f"another program listens at 127.0.0.1:{port}, where ranks would meet"):
            train(a_run(output=str(tmp_path)))


def histories(tables: object, dense: int, *, sequences: object, width: int = 4) -> None:
    """A model over tables that are not pooled."""
    del tables, dense, sequences, width


def build(tables: object, dense_columns: int, width: int) -> None:
    """A function that would make a model."""


WRONG: list[Any] = [
    (
        {"optimizers": RunOptimizers(dense=DenseOptimizer(name="adamm"))},
        "torch.optim has no 'adamm'; did you mean 'adam'",
    ),
    ({"optimizers": RunOptimizers(dense=DenseOptimizer(arguments={"momentum": 1}))}, r"optimizers.dense: .*momentum"),
    ({"watchers": ("gone_module:watch",)}, "'gone_module:watch' cannot be loaded"),
    needing("watch", {"watchers": ({"name": "plan_watch", "stepps": 3},)}, "did you mean 'steps'"),
    ({"pipeline": "gone_module:Step"}, "'gone_module:Step' cannot be loaded"),
    ({"rows": "gone_module:Rows"}, "'gone_module:Rows' cannot be loaded"),
    ({"comms": "gone_module:Comms"}, "'gone_module:Comms' cannot be loaded"),
    ({"model": RunModel(name="gone_module:build")}, "'gone_module:build' cannot be loaded"),
    ({"model": RunModel(name=f"{__name__}:build")}, r"model.arguments: missing a required argument: 'width'"),
    (
        {"model": RunModel(name=f"{__name__}:build", arguments={"widht": 1})},
        r"model.arguments: .*'wid(th|ht)'",
    ),
    (
        {"model": RunModel(name=f"{__name__}:histories", arguments={"sequences_x": 1})},
        r"model.arguments: .*'sequences_x'",
    ),
    ({"metrics": RunMetrics(evaluate_every=5)}, "there is no data.test to evaluate on"),
]


def test_sequences_are_no_argument_of_a_run():
    check_arguments("a:histories", histories, {"width": 8})


@pytest.mark.parametrize(("fields", "message"), WRONG)
@pytest.mark.parametrize("start", [train, dry_run])
def test_what_training_would_refuse_is_refused_before_anything_starts(
    start: object, fields: dict[str, object], message: str, tmp_path: Path
):
    with pytest.raises(UsageError, match=message):
        start(a_run(**{"output": str(tmp_path / "out"), **fields}))  # type: ignore[operator]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("start", [train, dry_run])
def test_an_output_that_cannot_be_written(start: object, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file/deep/out' cannot be written: Not a directory; give another output"):
        start(a_run(output=str(tmp_path / "file/deep/out")))  # type: ignore[operator]


def test_a_memory_limit_below_the_program_s_own_need(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    run = a_run(output=str(tmp_path / "out"), ranks=2)
    monkeypatch.setattr(prerequisites, "memory_limit", lambda: 500 * 2**20)
    with pytest.raises(UsageError, match="limit of this process is 500 MiB, and the 3 processes of this job take"):
        train(run)
    assert not (tmp_path / "out").exists()
    prerequisites.check_memory_limit(run, starts_ranks=False)
    monkeypatch.setattr(prerequisites, "memory_limit", lambda: None)
    prerequisites.check_memory_limit(run, starts_ranks=True)


def test_modules_beside_the_file_of_a_run_are_found(tmp_path: Path):
    (tmp_path / "beside_the_run.py").write_text("def watch(step, loss, samples): ...\n")
    run = a_run(
        output=str(tmp_path / "out"), watchers=("beside_the_run:watch",), checkpoint=Checkpointing(),
        data=RunData(train={"format": "generator", "seed": 1, "num_samples": 2000, "dense": 1,
                            "features": [{"name": "a", "num_embeddings": 9}]}),
    )  # fmt: skip
    save_run(run, tmp_path / "run.json")
    assert dry_run(tmp_path / "run.json")
    assert str(tmp_path) not in sys.path
