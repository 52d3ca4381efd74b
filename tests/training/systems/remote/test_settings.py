"""What a run with servers refuses, and what it says before: each with the rule, the values and the fix."""

import re
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from support.plans import two_tables

from recsmith.errors import CorruptFile, UsageError
from recsmith.training import Run, RunData, load_run, run_to_raw
from recsmith.training.systems.remote.parts import check_remote
from recsmith.training.systems.remote.planning import (
    brought_line,
    changes_line,
    check_same_run,
    check_servers,
    listening_line,
    shares_line,
)
from recsmith.training.systems.remote.settings import RunRemote

RUN = Run(data=RunData(train="clicks.tsv"), output="out", remote=RunRemote())


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("remote.servers=0", "remote.servers is 0"),
        ("remote.staleness=-1", "remote.staleness is -1; it must be 0 or more"),
        ("remote.backend=grpc", "'sockets', 'rpc' or 'ray'"),
        ("remote.timeout_s=0", "remote.timeout_s is 0; a call needs some seconds"),
        ("remote.address=host", "remote.address is 'host'; write host:port"),
        ("remote.address='host:99999'", "write host:port"),
        ("remote={servers: 3, address: 'host:65534'}", "3 servers listen at one port after the other"),
        ("remote.server=1", "did you mean 'servers'"),
    ],
)
def test_wrong_settings(setting: str, words: str) -> None:
    with pytest.raises((CorruptFile, UsageError), match=words):
        load_run(RUN, (setting,))


@pytest.mark.skipif(find_spec("torch") is None, reason="asks PyTorch for its RPC")
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("capture=trace", "remote does not go with capture yet"),
        ("remote.staleness=2", "remote.staleness is 2, .* data.batch_changes come after steps"),
    ],
)
def test_refused_before_anything_starts(setting: str, words: str) -> None:
    more = "data.batch_changes=[{after_steps: 5, size: 9}]" if "staleness" in setting else "seed=0"
    with pytest.raises(UsageError, match=words):
        check_remote(load_run(RUN, (setting, more)), launched=False)
    with pytest.raises(UsageError, match="a launcher started this job"):
        check_remote(RUN, launched=True)
    check_remote(RUN, launched=False)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            "address: '0.0.0.0:4000', servers: 2",
            r"servers listen at 0\.0\.0\.0, ports 4000 to 4001, which other .* key",
        ),
        ("address: 'node7:4000'", "servers listen at node7, port 4000, which other machines reach"),
        ("address: '0.0.0.0:4000', backend: rpc", r"servers meet at 0\.0\.0\.0:4000, .* asks nobody for a password"),
        ("address: '127.0.0.1:4000'", ""),
        ("address: '[::1]:4000', backend: rpc", ""),
        ("servers: 3", ""),
    ],
)
def test_an_address_that_others_reach_is_told(settings: str, said: str) -> None:
    lines = listening_line(load_run(RUN, (f"remote={{{settings}}}",)))
    assert len(lines) == bool(said)
    assert re.search(said, "".join(lines))


def test_more_servers_than_shards() -> None:
    plan = two_tables()
    placed = tuple(replace(each, sharding_type="table_wise", ranks=(0,), widths=()) for each in plan.placements)
    with pytest.raises(UsageError, match=r"the plan has 2 shards, so that \d+ of them would hold none"):
        check_servers(replace(plan, placements=placed))


def test_which_numbers_of_trainers_share_a_step() -> None:
    run = load_run(RUN, ("data.global_batch_size=12",))
    assert shares_line(run, 4) == []
    assert shares_line(run, 6) == [
        "1, 2, 3, 4, 6 of 6 trainers can share data.global_batch_size 12 evenly; where so many are left as cannot, the "
        "last of them wait"
    ]
    assert shares_line(RUN, 6) == []


def test_a_trainer_joins_with_the_run_of_the_job() -> None:
    job = run_to_raw(RUN)
    mine = run_to_raw(load_run(RUN, ("output=./out", "ranks=3", "plan=plan.json")))
    check_same_run(job, mine, "out")
    other = run_to_raw(load_run(RUN, ("model.embedding_dim=32", "remote.timeout_s=5")))
    words = r"'out' has other settings than this run: .*model.embedding_dim \(default there, 32 here\)"
    with pytest.raises(UsageError, match=words):
        check_same_run(job, other, "out")
    with pytest.raises(UsageError, match=r"remote.timeout_s \(5.0 there, default here\)"):
        check_same_run(other, job, "out")


@pytest.mark.parametrize(
    ("slower", "said"),
    [
        (None, r"predicted: servers (cost|paid)"), (1.4, r"predicted: servers (cost|paid)"),
        (3.1, r"predicted; a step took 3.1 times what was predicted, so whether servers paid off is not known$"),
    ],
)  # fmt: skip
def test_whether_servers_paid_is_told_where_the_step_was_about_as_told(slower: float | None, said: str) -> None:
    counts = SimpleNamespace(steps=2, rows=10, sent_bytes=100, received_bytes=100, server_s=0.02)
    run = load_run(RUN, ("data.batch_size=64",))
    assert re.search(said, brought_line(run, two_tables(), counts, 2, slower))


def test_trainers_that_came_and_went_are_counted() -> None:
    assert changes_line([], [], []) is None
    told = changes_line(["a", "b"], ["a"], ["b"])
    assert told == "trainers while the job ran: 2 joined, 1 left when asked to end, 1 lost"
