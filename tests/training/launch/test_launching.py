"""What a launcher says of a process, and what it leaves out."""

import pytest

from recsmith.errors import UsageError
from recsmith.training import Run, RunData
from recsmith.training.launch.launching import join_and_train
from recsmith.training.launch.ranks import launcher_environment

SRUN = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"}
MEETING = {"MASTER_ADDR": "host0", "MASTER_PORT": "29500"}
TORCHRUN = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SRUN, *MEETING, *TORCHRUN):
        monkeypatch.delenv(name, raising=False)


def given(monkeypatch: pytest.MonkeyPatch, words: dict[str, str]) -> dict[str, str] | None:
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    return launcher_environment()


def test_without_a_launcher_this_process_is_no_rank(monkeypatch: pytest.MonkeyPatch):
    assert given(monkeypatch, {}) is None
    assert given(monkeypatch, SRUN | {"SLURM_NTASKS": "1"}) is None


def test_srun_says_which_rank_this_is(monkeypatch: pytest.MonkeyPatch):
    assert given(monkeypatch, SRUN | MEETING) == {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}


def test_torchrun_under_slurm_counts_and_not_srun(monkeypatch: pytest.MonkeyPatch):
    assert given(monkeypatch, SRUN | TORCHRUN) == TORCHRUN


@pytest.mark.parametrize("missing", ["MASTER_ADDR", "MASTER_PORT"])
def test_srun_without_a_place_to_meet_is_refused(monkeypatch: pytest.MonkeyPatch, missing: str):
    words = {name: value for name, value in MEETING.items() if name != missing}
    with pytest.raises(UsageError, match=f"{missing} is not set; export"):
        given(monkeypatch, SRUN | words)


def test_ranks_that_do_not_know_their_number_on_the_machine_are_refused(monkeypatch: pytest.MonkeyPatch):
    assert given(monkeypatch, {"RANK": "0", "WORLD_SIZE": "1"}) is None
    with pytest.raises(UsageError, match="RANK is 1, WORLD_SIZE is 2 and LOCAL_RANK is not set; export LOCAL_RANK"):
        given(monkeypatch, {"RANK": "1", "WORLD_SIZE": "2"})


def test_ranks_of_a_launcher_must_know_the_cluster_that_feeds_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    fed = Run(data=RunData(train="clicks.tsv", feed="auto", engine="ray"), output="runs/fed")
    with pytest.raises(UsageError, match=r"which Ray cluster feeds it; .* data\.ray_address, or as RAY_ADDRESS"):
        join_and_train(fed, {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"})
