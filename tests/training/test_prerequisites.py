"""What a run needs of this machine: each thing that lacks is one sentence, before anything starts."""

import socket
from importlib.util import find_spec
from pathlib import Path

import pytest

from recsmith.errors import MissingExtra, RecSmithError, UsageError
from recsmith.training import Run, RunData, RunMetrics, train
from recsmith.training.prerequisites import check_machine

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]


def a_run(**words: object) -> Run:
    return Run(**{"data": RunData(train="nowhere"), "output": "out", **words})  # type: ignore[arg-type]


def test_tensorboard_that_is_not_installed_is_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("recsmith.jobs.log.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"metrics.tensorboard needs the package tensorboard: pip install"):
        train(a_run(metrics=RunMetrics(tensorboard=True)))


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
