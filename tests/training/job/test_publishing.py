"""Checkpoints in a store: a job whose disk is gone goes on from there, to the same bits; what is refused is told."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.stores import Store, cut_line
from support.two_table_jobs import a_run

from recsmith.errors import CorruptFile, UsageError
from recsmith.files.remote.folders import FolderStore, PublishedFolder
from recsmith.training import Checkpointing, train
from recsmith.training.launch.launching import dry_run

pytestmark = pytest.mark.usefixtures("torchrec")
STEPS = 12


def a_job(folder: Path, said: Checkpointing, **changed: Any) -> Any:
    return replace(a_run(folder, ranks=2, **changed), checkpoint=said)


def weights(run: Any) -> bytes:
    return (Path(run.output) / "model" / "weights.safetensors").read_bytes()


def index(store: Store) -> dict[str, Any]:
    return {each["name"]: each for each in json.loads(store.get("jobs/a/published.json"))["folders"]}


def test_a_job_whose_disk_is_gone_goes_on_from_the_store_to_the_same_bits(store: Store, tmp_path: Path):
    said = Checkpointing(every=2, keep=2, publish=f"{store.at}/jobs/a")
    whole = a_job(tmp_path / "whole", Checkpointing(every=2))
    train(whole)
    train(a_job(tmp_path / "first", said, steps=7))
    found = index(store)
    assert list(found) == ["model", "step-00000006", "step-00000007"]
    names = {each["name"] for each in found["step-00000007"]["files"]}
    assert {"progress.json", "plan.json", "run.json", "random-0.json", "random-1.json", "state/.metadata"} < names
    assert {"state/__0_0.distcp", "state/__1_0.distcp"} < names
    second = a_job(tmp_path / "second", replace(said, background=True))
    assert any("training brings step-00000007 from" in line for line in dry_run(second))
    lines = list[str]()
    train(second, on_progress=lambda message: lines.append(str(message)))
    assert any("going on after step 7 of" in line for line in lines)
    assert weights(second) == weights(whole)
    assert list(index(store)) == ["model", f"step-{STEPS - 2:08d}", f"step-{STEPS:08d}"]


def test_what_a_store_refuses_is_told_before_a_step_and_later_ones_train_on(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run, lines = a_job(tmp_path, Checkpointing(every=4, publish=f"{store.at}/jobs/a")), list[str]()
    with pytest.raises(UsageError, match=r"cannot write 's3://no-such-bucket/jobs/.*there is no such bucket or object"):
        train(replace(run, checkpoint=Checkpointing(publish="s3://no-such-bucket/jobs")))
    store.put("jobs/a/published.json", b"{}")
    with pytest.raises(UsageError, match=r"published.json"):
        train(run)
    store.client().delete_object(Bucket=store.bucket, Key="jobs/a/published.json")
    with cut_line(store.server) as line:
        line.cut = lambda _: any("/step-" in asked for asked in line.asked)  # from the first checkpoint on
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{line.port}")
        monkeypatch.setenv("RECSMITH_STORE_PATIENCE", "0.2")
        train(run, on_progress=lambda message: lines.append(str(message)))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{store.server}")
    told = [line for line in lines if "the checkpoint of step 4 was not published: it is in" in line]
    assert len(told) == 1
    assert "the connection to the store was cut off" in told[0]
    assert any("the model was not published" in line for line in lines)
    assert sorted(each.name for each in (tmp_path / "out" / "checkpoints").iterdir())[-1] == f"step-{STEPS:08d}"
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(key)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    for start in (train, dry_run):
        with pytest.raises(UsageError, match=r"the store refuses it .*no credentials were found"):
            start(run)


def test_a_checkpoint_that_is_replaced_while_it_is_brought_is_not_missed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from recsmith.training.job import publishing

    there, made, fetch = FolderStore(f"{store.at}/jobs/a"), tmp_path / "made", FolderStore.fetch
    made.mkdir()
    (made / "progress.json").write_text("{}")

    def publish(step: int) -> None:
        name, attempt = f"step-{step:08d}", f"step-{step:08d}.{'a' * 16}.{step}"
        files = tuple(there.upload(made, [made / "progress.json"], attempt))
        there.publish(PublishedFolder(name=name, attempt=attempt, files=files), 1, "a" * 16)

    def replaced(self: FolderStore, wanted: PublishedFolder, target: Path) -> None:
        if target.name == "step-00000001":  # of a job that is being ended, and saves once more
            publish(2)
        fetch(self, wanted, target)

    publish(1)
    monkeypatch.setattr(FolderStore, "fetch", replaced)
    (tmp_path / "checkpoints").mkdir()
    publishing._brought(there, tmp_path / "checkpoints")
    assert [each.name for each in (tmp_path / "checkpoints").glob("*[0-9]")] == ["step-00000002"]
    store.put(f"jobs/a/step-00000002.{'a' * 16}.2/progress.json", b"[]")
    with pytest.raises(CorruptFile, match="is damaged"):
        publishing._brought(there, tmp_path)
