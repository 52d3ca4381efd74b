"""Real jobs whose tables are on servers: the losses of the planned job, its checkpoints, and what is counted."""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from support.listeners import watched_listeners
from support.ranks import PROCESSES
from training.test_jobs import BATCH, DIM, EVERY, SIZES, STEPS, a_run, data, from_step, losses
from training.unsharded import unsharded_losses

import recsmith
from recsmith.errors import RecSmithError, UsageError
from recsmith.files import dump_json
from recsmith.jobs.launch import job_environment, job_folder
from recsmith.jobs.log import LOG_FILE
from recsmith.jobs.log_lines import LOG, logged
from recsmith.training import Checkpointing, Run, RunData, RunOptimizers, SparseOptimizer, run_to_raw, train
from recsmith.training.launch.dry_run import described
from recsmith.training.systems.remote import hosting
from recsmith.training.systems.remote.calls import ServerPlace
from recsmith.training.systems.remote.settings import RunRemote

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
LONG_STEPS = 20_000  # of a job that does not come to its end
JOINED_STEPS = 3000  # of a job that another trainer joins: it needs seconds to start
KINDS = {"a": "table_wise", "b": "row_wise", "c": "table_wise", "d": "column_wise"}


def plan_of_servers(folder: Path, optimizer: str) -> str:
    """A plan for two servers: a table in rows, and one in columns."""
    tables = [{"name": n, "num_embeddings": s, "embedding_dim": DIM, "pooling_factor": 1} for n, s in SIZES.items()]
    workload = {"schema": "recsmith/workload/1", "batch_size": BATCH // 2, "optimizer": optimizer, "tables": tables}
    rules = [{"tables": name, "sharding_types": [kind]} for name, kind in KINDS.items()]
    (folder / "tables.json").write_text(dump_json(workload))
    (folder / "rules.json").write_text(dump_json({"schema": "recsmith/constraints/1", "rules": rules}))
    made = recsmith.plan(folder / "tables.json", "cpu:2", constraints=folder / "rules.json", planner="size_greedy").plan
    recsmith.save_plan(made, folder / "plan.json")
    return str(folder / "plan.json")


def optimizers(name: Any) -> RunOptimizers:
    return RunOptimizers(sparse=SparseOptimizer(name=name, learning_rate=0.05))


def wait_for_lines(output: Path, lines: int) -> int:
    """How many lines of training are in a log, once there are so many."""
    log, found, until = output / "log.jsonl", 0, time.monotonic() + 300
    while time.monotonic() < until and (found := log.read_text().count('"train"') if log.exists() else 0) < lines:
        time.sleep(0.02)
    return found


def send(signal_: signal.Signals, name: str) -> bool:
    """Send a trainer, or a server, a signal; whether there was one."""
    if name in PROCESSES:
        with suppress(ProcessLookupError):
            os.kill(PROCESSES[name].pid, signal_)
            return True
    return False


def killed(run: Run, lines: int, name: str) -> tuple[dict[str, Any], list[str]]:
    """What came of a run of which a process was killed once so many lines were logged, and what it said."""
    return disturbed(run, lambda: wait_for_lines(Path(run.output), lines) and send(signal.SIGKILL, name))


def disturbed(run: Run, disturb: Callable[[], object]) -> tuple[dict[str, Any], list[str]]:
    """What came of a run beside which something was done, and what it said."""
    said, other = list[str](), threading.Thread(target=disturb)
    other.start()
    try:
        with watched_listeners():
            return train(run, on_progress=lambda message: said.append(message.get("note", ""))), said
    finally:
        other.join()


on_ray = pytest.param("ray", marks=[
    pytest.mark.soak, pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray"),
    pytest.mark.filterwarnings("ignore"),
])  # fmt: skip


@pytest.fixture(scope="module", params=["sockets", pytest.param("rpc", marks=pytest.mark.soak), on_ray])
def trained(tmp_path_factory: pytest.TempPathFactory, request: Any) -> tuple[Run, dict[str, Any], list[str]]:
    """A run of two servers and two trainers, one of which is killed on the way, what came of it, and what it said."""
    folder = tmp_path_factory.mktemp("remote")
    run = a_run(
        folder / "out", plan=plan_of_servers(folder, "adagrad"), ranks=2, optimizers=optimizers("adagrad"),
        remote=RunRemote(servers=2, backend=request.param, timeout_s=10),
    )  # fmt: skip
    return run, *killed(run, EVERY + 1, "trainer-1")


def test_losses_are_those_of_the_planned_job(trained: tuple[Run, dict[str, Any], list[str]]) -> None:
    """No sample is left out, and no step counts twice, though a trainer was killed."""
    run, result, said = trained
    assert "trainer 1 has ended (by SIGKILL); the others go on" in said
    expected = unsharded_losses(run, STEPS)
    assert losses(Path(run.output)) == pytest.approx(expected, rel=1e-6)
    assert result["complete"]
    counts = result["remote"]
    brought = result["brought"]
    assert re.search(r" rows, sent .* were predicted. The planned job waits .* predicted[:;] ", brought["remote"])
    assert brought["trainers"] == "trainers while the job ran: 1 lost"
    [start] = [each for each in map(json.loads, (Path(run.output) / "log.jsonl").read_text().splitlines())
               if each["event"] == "start" and not each["step"]]  # fmt: skip
    fresh = described(replace(run, output=f"{run.output}-fresh"))
    assert fresh.step is not None
    assert fresh.step.step_s == pytest.approx(start["predicted_step_s"], rel=1e-9)
    assert STEPS <= counts["steps"] <= STEPS + 1  # one was repeated
    assert counts["row_bytes"] == counts["rows"] * DIM * 4
    assert 2 * counts["row_bytes"] + counts["id_bytes"] < counts["sent_bytes"] + counts["received_bytes"]


def test_a_trainer_that_dies_while_it_starts_is_not_waited_for(tmp_path: Path) -> None:
    """Nobody has heard of it yet; the other trains every sample."""
    run = a_run(tmp_path / "out", ranks=2, steps=6, remote=RunRemote(servers=1, timeout_s=60), checkpoint=None)

    def kill_at_once() -> None:
        until = time.monotonic() + 60
        while not send(signal.SIGKILL, "trainer-0") and time.monotonic() < until:
            time.sleep(0.02)

    result, said = disturbed(run, kill_at_once)
    assert "trainer 0 has ended (by SIGKILL); the others go on" in said
    assert (result["complete"], result["remote"]["lost"]) == (True, ["trainer-0"])
    assert losses(tmp_path / "out") == pytest.approx(unsharded_losses(run, 6), rel=1e-6)


@contextmanager
def servers_of(run: Run) -> Generator[ServerPlace]:
    """The servers of a run, without its trainers."""
    assert run.remote is not None
    with ExitStack() as held:
        folder = held.enter_context(job_folder())
        address, _store, meet = held.enter_context(hosting._meeting(run.remote, folder))
        place = ServerPlace(
            backend="sockets", address=address, job=folder.name, key="0" * 32, servers=run.remote.servers,
            timeout_s=run.remote.timeout_s,
        )  # fmt: skip
        words = {"run": run_to_raw(run), "place": asdict(place), "meet": meet, "trainers": 1, "processes": str(folder)}
        environment = job_environment(3, own=True)

        def start(number: int, function: str, arguments: Any, *passed: int) -> Any:
            own = folder / f"server-{number}"
            log = {LOG_FILE: str(own / "log.jsonl")}
            return held.enter_context(hosting._started(own, function, arguments, number, environment | log, passed))

        list(hosting._own_servers(place, words, start))
        yield place


@pytest.mark.soak
def test_a_trainer_that_dies_while_it_asks_for_a_checkpoint_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has asked one server of two, which writes nothing and answers the others."""
    monkeypatch.setenv("RANK", "0")  # which a trainer sets, and other tests must not see
    from recsmith.training.systems.remote.calls import connected, worded, words_of
    from recsmith.training.systems.remote.client import TableClient

    run = a_run(tmp_path / "out", ranks=1, remote=RunRemote(servers=2, timeout_s=5))
    with servers_of(run) as place:
        calls = connected(place, "trainer-0")
        client = TableClient(calls)
        calls.greet()
        with client.living():
            client.gather()
            dense = client.begin()[3]
            progress = {"step": 0, "position": 0, "ranks": 1}
            said = worded(dense, progress=progress, committed=0, generation=1, random=[], save="asked of one")
            calls.call(0, "save", said, place.timeout_s)
            begun = time.monotonic()
            client.begin()
            while not (told := words_of(calls.call(0, "written", worded(), place.timeout_s)))["done"]:
                continue
            assert time.monotonic() - begun < 3 * place.timeout_s, "as long as writing may take would be 20 times"
            assert "has ended before it asked all servers" in told["problem"]
        calls.close()


@pytest.mark.soak
def test_a_planned_job_goes_on_from_servers(trained: tuple[Run, dict[str, Any], list[str]], tmp_path: Path) -> None:
    """As if it had trained all along."""
    run, result, _ = trained
    again = replace(run, remote=None, output=str(from_step(run, EVERY, tmp_path / "planned")))
    done = train(again)
    assert losses(Path(again.output)) == pytest.approx(losses(Path(run.output)), rel=1e-6)
    assert done["test"]["logloss"] == pytest.approx(result["test"]["logloss"], rel=1e-6)


@pytest.mark.soak
def test_a_server_that_dies_ends_the_job_in_a_sentence(tmp_path: Path) -> None:
    run = a_run(tmp_path / "out", ranks=2, steps=60, remote=RunRemote(servers=2, timeout_s=10))
    with pytest.raises(RecSmithError, match=r"server 1 (has ended \(by SIGKILL\)|cannot be reached)"):
        killed(run, EVERY + 2, "server-1")
    found = train(run)
    assert found["complete"]
    assert losses(tmp_path / "out") == pytest.approx(unsharded_losses(run, 60), rel=1e-6)


@pytest.mark.soak
@pytest.mark.parametrize(("staleness", "when"), [(0, "training"), (2, "training"), (0, "saving")])
def test_a_server_that_is_stopped_ends_the_job_in_a_sentence(staleness: int, when: str, tmp_path: Path) -> None:
    """Its connections stay open, and it is asked last: within two timeouts, not the 20 of the longest wait."""
    timeout, output, stopped = 5, tmp_path / "out", list[float]()
    remote = RunRemote(servers=2, timeout_s=timeout, staleness=staleness)
    run = a_run(output, ranks=2, steps=LONG_STEPS, remote=remote, checkpoint=Checkpointing(every=200))

    def stop() -> None:
        until = time.monotonic() + 300
        wait_for_lines(output, EVERY)
        while when == "saving" and not any(output.glob("checkpoints/*.partial")) and time.monotonic() < until:
            time.sleep(0.0005)
        send(signal.SIGSTOP, "server-1")
        stopped.append(time.monotonic())

    with pytest.raises(RecSmithError, match=rf"server \d did not answer '\w+' within {timeout} s; the same command"):
        disturbed(run, stop)
    assert time.monotonic() - stopped[0] < 4 * timeout  # the rest is a busy machine's


@pytest.mark.soak
def test_a_job_whose_only_trainer_is_stopped_ends_in_a_sentence(tmp_path: Path) -> None:
    """Nobody is left who would notice but the server."""
    timeout, output = 2, tmp_path / "out"
    run = a_run(output, ranks=1, steps=LONG_STEPS, remote=RunRemote(timeout_s=timeout), checkpoint=None)
    begun = list[float]()

    def stop() -> None:
        wait_for_lines(output, EVERY)
        send(signal.SIGSTOP, "trainer-0")
        begun.append(time.monotonic())

    with pytest.raises(RecSmithError, match=r"^no trainer of this job was heard for more than 40 s, 20 times remote"):
        disturbed(run, stop)
    assert 20 * timeout <= time.monotonic() - begun[0] + timeout < 30 * timeout


@pytest.mark.soak
@pytest.mark.parametrize("staleness", [0, 2])
def test_a_trainer_joins(staleness: int, tmp_path: Path) -> None:
    remote = RunRemote(servers=1, staleness=staleness, timeout_s=20)
    run = a_run(
        tmp_path / "out", ranks=1, steps=JOINED_STEPS, remote=remote, optimizers=optimizers("adagrad"),
        checkpoint=Checkpointing(every=1000),
    )  # fmt: skip
    with pytest.raises(UsageError, match="no job with servers runs in"):
        train(run, join=True)
    results = list[dict[str, Any]]()

    def join() -> None:
        while not (tmp_path / "out/remote.json").exists() or not (tmp_path / "out/log.jsonl").exists():
            time.sleep(0.05)
        assert (tmp_path / "out/remote.json").stat().st_mode & 0o777 == 0o600
        results.append(train(run, join=True))

    newcomer = threading.Thread(target=join)
    newcomer.start()
    result = train(run)
    newcomer.join()
    assert result["step"] == results[0]["step"] == JOINED_STEPS
    assert results[0]["remote"]["steps"] > 0
    if not staleness:
        assert losses(tmp_path / "out") == pytest.approx(unsharded_losses(run, JOINED_STEPS), rel=1e-5)
    assert not (tmp_path / "out/remote.json").exists()


@pytest.mark.parametrize("staleness", [0])
def test_who_joined_leaves_at_a_signal_and_is_noticed_when_it_dies(staleness: int, tmp_path: Path) -> None:
    """Also what all is told of it, and the end that two trainers come to sooner."""
    output, errors, heard = tmp_path / "out", list[str](), list[Any]()
    run = a_run(
        output, ranks=1, steps=None, remote=RunRemote(servers=1, staleness=staleness, timeout_s=60), checkpoint=None,
        data=RunData(train=data(0, 20_000), batch_size=BATCH, epochs=200),
    )  # fmt: skip

    def wait_until(said: str) -> None:
        until = time.monotonic() + 50
        while not any(said in each.get("note", "") for each in heard) and time.monotonic() < until:
            time.sleep(0.02)

    def join_and_end(signal_: signal.Signals, known: set[str]) -> None:
        def join() -> None:
            with pytest.raises(RecSmithError) as error:
                train(run, join=True)
            errors.append(str(error.value))

        other = threading.Thread(target=join)
        other.start()
        until = time.monotonic() + 50
        while not (new := {each for each in PROCESSES if "joined" in each} - known) and time.monotonic() < until:
            time.sleep(0.02)
        [name] = new
        wait_until(f"trainer {name.removeprefix('trainer-')} joined: 2 trainers ")
        wait_for_lines(output, wait_for_lines(output, 0) + 2)
        send(signal_, name)
        other.join()

    def disturb() -> None:
        wait_for_lines(output, 2)
        other = replace(run, model=replace(run.model, embedding_dim=2 * DIM))
        with pytest.raises(UsageError, match=r"other settings than this run: model\.embedding_dim"):
            train(other, join=True)
        try:
            for each in (signal.SIGTERM, signal.SIGKILL):
                join_and_end(each, {each for each in PROCESSES if "joined" in each})
                wait_until(" left: 1 trainer " if each == signal.SIGTERM else " has ended; the others go on")
                wait_for_lines(output, wait_for_lines(output, 0) + 2)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=disturb)
    thread.start()
    result = train(run, on_progress=heard.append)
    thread.join()
    first, second = errors
    assert re.fullmatch(
        r"a signal ended this trainer after it had trained [\d,]+ batch(es)?; the job .* goes on", first
    )
    assert second.startswith("this trainer has ended (by SIGKILL); the job of the others goes on")
    said = [each["note"] for each in heard if "note" in each]
    assert sum(" joined: 2 trainers " in each for each in said) == 2
    assert any(" was asked to end and left: 1 trainer " in each for each in said)
    assert any(" has ended; the others go on" in each for each in said)
    assert not any("silent" in each for each in said)
    assert [len(result["remote"][each]) for each in ("joined", "left", "lost")] == [2, 1, 1]
    assert result["brought"]["trainers"].endswith("2 joined, 1 left when asked to end, 1 lost")
    events = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    came = [each for each in events if each["event"] == "trainers"]
    assert [sum(len(each[key]) for each in came) for key in ("joined", "left", "lost")] == [2, 1, 1]
    totals = [total for total, _ in groupby(each["steps"] for each in heard if "steps" in each)]
    whole = 200 * (20_000 // BATCH)
    assert totals[0] == whole
    assert staleness or (len(totals) == 5 and max(totals[1:]) < whole)


@pytest.mark.soak
def test_batches_are_leased_within_the_bound_though_a_trainer_dies(tmp_path: Path) -> None:
    run = a_run(tmp_path / "out", ranks=2, steps=60, remote=RunRemote(servers=2, staleness=2, timeout_s=8))
    result, said = killed(run, 10, "trainer-1")
    told = result["remote"]
    assert "trainer 1 has ended (by SIGKILL); the others go on" in said
    assert told["batches"] == 120
    assert told["repeated"] <= 1
    assert told["lost"] == ["trainer-1"]
    assert max(map(int, told["lags"])) <= 2
    assert sum(told["lags"].values()) == 120 + told["repeated"]
    events = map(json.loads, (tmp_path / "out/log.jsonl").read_text().splitlines())
    lines = [each for each in events if each["event"] == "train"]
    assert lines
    for each in lines:  # of the job, of which this trainer makes a part
        assert each["step"] == each["batches"] // 2 <= 60
        assert each["own_batches"] <= each["batches"] <= 120
    assert any("120 batches of all trainers" in each for each in said)
    assert result["brought"]["step"].startswith("a step of all trainers (2 batches) took ")
    assert sorted(each.name for each in (tmp_path / "out/checkpoints").iterdir())[-1] == "step-00000060"
    again = replace(run, remote=None, steps=64)
    assert train(again)["step"] == 64


@pytest.mark.soak
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "rowwise_adagrad"])
def test_checkpoints_go_on_both_ways(optimizer: str, tmp_path: Path) -> None:
    """From a planned job to servers, and from servers to a planned job, each on two ranks; the state is carried."""
    warm = replace(optimizers(optimizer), warmup_steps=3)
    plan = plan_of_servers(tmp_path, optimizer)
    planned = a_run(tmp_path / "planned", ranks=2, optimizers=warm, plan=plan)
    served = replace(planned, remote=RunRemote(servers=2), output=str(tmp_path / "served"))
    for run, other in ((planned, served), (served, planned)):
        train(run)
        expected = losses(Path(planned.output))
        assert losses(Path(run.output)) == pytest.approx(expected, rel=1e-6)
        again = replace(other, output=str(from_step(run, EVERY, tmp_path / f"after-{Path(run.output).name}")))
        train(again)
        assert losses(Path(again.output)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.soak
def test_of_four_trainers_one_is_killed(tmp_path: Path) -> None:
    """Three cannot share 32 samples, so two go on with all of them, and one waits."""
    steps = 60
    run = a_run(
        tmp_path / "out", ranks=4, steps=steps, remote=RunRemote(servers=2, timeout_s=10),
        data=RunData(train=data(0, 20_000), test=data(20_000, 101), global_batch_size=32),
    )  # fmt: skip
    result, said = killed(run, 10, "trainer-1")
    assert "2 trainers share a step, and 1 wait until they are needed" in said
    assert losses(tmp_path / "out") == pytest.approx(unsharded_losses(run, steps), rel=1e-6)
    assert (result["complete"], result["remote"]["lost"]) == (True, ["trainer-1"])
    assert steps <= result["remote"]["steps"] <= steps + 1


@pytest.mark.soak
@pytest.mark.parametrize("staleness", [0, 2])
def test_a_stopped_trainer_is_left_out_and_refused_later(staleness: int, tmp_path: Path) -> None:
    """The first of two, which leads: the other goes on within the timeout, and nothing counts twice."""
    steps, timeout, waited, output = 1500, 5, list[float](), tmp_path / "out"
    run = a_run(
        output, ranks=2, steps=steps, remote=RunRemote(servers=2, timeout_s=timeout, staleness=staleness),
        checkpoint=Checkpointing(every=100),
    )  # fmt: skip

    def stop() -> None:
        wait_for_lines(output, 10)
        send(signal.SIGSTOP, "trainer-0")
        begun = time.monotonic()
        if not staleness:
            wait_for_lines(output, wait_for_lines(output, 10) + 2)
        else:
            time.sleep(2 * timeout)
        waited.append(time.monotonic() - begun)
        send(signal.SIGCONT, "trainer-0")

    result, said = disturbed(run, stop)
    refused = f"trainer-0 was silent for more than {timeout} s (remote.timeout_s), or the others waited 20 times as"
    assert any(each.startswith(refused) for each in said), said[-5:]
    assert result["remote"]["lost"] == ["trainer-0"]
    assert timeout < waited[0] < 4 * timeout  # the rest is a busy machine's
    if staleness:
        assert result["remote"]["batches"] == 2 * steps
        assert result["remote"]["repeated"] <= 1
    else:
        assert losses(output) == pytest.approx(unsharded_losses(run, steps), rel=1e-5)


@pytest.mark.parametrize(("kept", "dies"), [(True, None), (True, "trainer-0"), (False, None)])
def test_trainers_that_wait_for_nobody_end_together_at_a_signal(kept: bool, dies: str | None, tmp_path: Path) -> None:
    """Also those that were not asked themselves: the step is saved, and no model written; the same command goes on."""
    output = tmp_path / "out"
    run = a_run(
        output, ranks=2, steps=LONG_STEPS, remote=RunRemote(servers=1, staleness=2, timeout_s=20),
        checkpoint=Checkpointing(every=LONG_STEPS) if kept else None,
    )  # fmt: skip

    def end() -> None:
        wait_for_lines(output, EVERY)
        if dies is not None and send(signal.SIGKILL, dies):
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    result, said = disturbed(run, end)
    step = result["step"]
    assert (result["complete"], "test" in result, (output / "model").exists()) == (False, False, False)
    assert 0 < step < LONG_STEPS
    assert result["brought"]["step"].startswith("a step of all trainers (2 batches) took ")
    assert result["brought"]["step"].endswith(" were predicted") == (dies is None)  # the first trainer knows
    if not kept:
        assert f"asked to end: ended after step {step:,} with nothing saved, since the run has no checkpoint" in said
        return
    assert f"asked to end: saved after step {step:,}; the same command goes on from there" in said
    assert [each.name for each in (output / "checkpoints").iterdir()] == [f"step-{step:08d}"]
    again = train(replace(run, steps=step + 2))
    assert (again["complete"], again["step"], (output / "model").exists()) == (True, step + 2, True)
    (told,) = [each for each in logged(output / LOG, "remote") if each["step"] == step + 2]
    assert told["own_batches"] <= told["batches"] == 4
