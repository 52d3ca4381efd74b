"""A feed whose workers are Ray actors: the same batches, on several nodes, whatever is lost; nothing stays behind."""

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from feeding.support import GROUPS, SPEC, assert_same, kill_worker, locally, pid_of, settings
from support.listeners import descendants, listening, wide

import recsmith
from recsmith.data import Batch
from recsmith.errors import MissingExtra, RecSmithError
from recsmith.feeding import Feed, engine_of
from recsmith.feeding.engines import parts_in
from recsmith.feeding.on_ray import FeedActor
from recsmith.files import dump_json, encode

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")
ignore_ray = pytest.mark.filterwarnings("ignore")  # what Ray itself warns of


def test_without_ray_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recsmith.feeding.on_ray.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"needs Ray: pip install 'ray"):
        engine_of("ray", settings())


def test_a_node_with_another_recsmith_makes_nothing() -> None:
    actor = FeedActor(dump_json(encode(settings())), "no/folder", "0.0.1")
    with pytest.raises(RecSmithError, match=r"RecSmith .*, the trainer 0\.0\.1, .* install the same on both"):
        list(parts_in(actor.answers(0), settings().open().schema, GROUPS))


@needs_ray
@ignore_ray
def test_a_cluster_that_is_not_there_is_told_at_once() -> None:
    with pytest.raises(RecSmithError, match=r"Ray cannot be joined at '127\.0\.0\.1:1' .*refused.*data\.ray_address"):
        engine_of("ray", settings(), "127.0.0.1:1")


@pytest.fixture(scope="module")
def cluster() -> Generator[Any]:
    """A head without cores, and two nodes; a node is seen to be gone after a second."""
    from recsmith.feeding.on_ray import imported_ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        imported_ray(loopback=True)
        from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

        fast = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 2}
        head = {"num_cpus": 0, "node_ip_address": "127.0.0.1", "include_dashboard": False, "_system_config": fast}
        made = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(2):
            made.add_node(num_cpus=2, node_ip_address="127.0.0.1")
        yield made
        made.shutdown()


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def kill_node(process: int) -> None:
    """Kill a node's own process; its actors end with it once nothing of it is left."""
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


@needs_ray
@ignore_ray
def test_batches_are_those_of_the_dataset_when_an_actor_and_a_node_are_killed(cluster: Any) -> None:
    made = settings(used=777, data={**SPEC, "num_samples": 100_000})
    expected = locally(made)
    with Feed(made, workers=2, engine=engine_of("ray", made, cluster.address)) as feed:
        found: list[Batch] = []
        for batch in feed:
            found.append(batch)
            if len(found) == 3:
                kill_worker(feed)
            if len(found) == 60:
                while not pid_of(feed):
                    time.sleep(0.05)
                actor = pid_of(feed)
                kill_node(parent_of(actor))
                assert ended([actor])
        assert feed.figures.lost >= 2
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other)
        assert one.dense.flags.writeable  # and no part of the object store


@needs_ray
@ignore_ray
def test_actors_are_spread_and_what_is_wrong_in_them_is_told(cluster: Any) -> None:
    cluster.add_node(num_cpus=2, node_ip_address="127.0.0.1")
    made = settings()
    with Feed(made, workers=4, engine=engine_of("ray", made, cluster.address)) as feed:
        next(feed)
        while not all(pid_of(feed, number) for number in range(4)):
            time.sleep(0.05)
        assert len({parent_of(pid_of(feed, number)) for number in range(4)}) == 2  # Ray spreads as well as it can
    wrong = [{"op": "map_ids", "feature": "b", "ids": list(range(5)), "unknown": "wrong"}]
    bad = settings(data={**SPEC, "transforms": wrong})
    with (
        Feed(bad, workers=1, engine=engine_of("ray", bad, cluster.address)) as feed,
        pytest.raises(RecSmithError, match="map_ids has no outcome for 'b' of sample"),
    ):
        next(feed)


PROGRAM = """
import sys, time
sys.path[:0] = {places!r}
from feeding.support import settings
from recsmith.feeding import Feed, engine_of
made = settings()
feed = Feed(made, 1, engine=engine_of("ray", made))
next(feed)
print("ready", flush=True)
time.sleep(600)
"""


@needs_ray
def test_a_ray_of_its_own_is_on_the_loopback_alone_and_ends_with_the_trainer(tmp_path: Path) -> None:
    places = [Path(__file__).parents[1], Path(recsmith.__file__).parents[1]]
    program = PROGRAM.format(places=[str(each) for each in places])
    words = [sys.executable, "-P", "-W", "ignore", "-c", program]
    (tmp_path / "pydantic.py").write_text("open('run.txt', 'w')")  # in the working folder, where anything may lie
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True, cwd=tmp_path) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == b"ready\n"
        started = descendants(trainer.pid)
        addresses = listening(started)
        trainer.kill()
    assert not (tmp_path / "run.txt").exists()
    assert len(started) > 3
    assert addresses
    assert not wide(addresses)
    assert ended(started, seconds=120)  # two helpers of Ray try to tell of the death for a minute


def ended(processes: list[int], seconds: int = 30) -> bool:
    """Whether all have ended in time."""

    def runs(process: int) -> bool:
        try:
            return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    return any(not any(map(runs, processes)) or time.sleep(0.1) for _ in range(10 * seconds))
