"""Who trains what: trainers that keep step, those that lease batches, and those that die."""

import fcntl
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.training.systems.remote.calls import LeftOut, Regroup
from recsmith.training.systems.remote.leases import BatchLeases
from recsmith.training.systems.remote.members import ALIVE, ENDED, Members, ended_in


@given(
    trainers=st.integers(1, 4), staleness=st.integers(0, 3), total=st.integers(1, 40), every=st.integers(1, 5),
    turns=st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["go", "go", "go", "die"])), max_size=200),
)  # fmt: skip
def test_leases(trainers: int, staleness: int, total: int, every: int, turns: list[tuple[int, str]]) -> None:
    """No batch is leased further ahead than the bound, each is trained, and again only where a trainer died."""
    leases, deaths = BatchLeases(trainers, staleness, 1000.0, every * trainers, 0, total), Counter[int]()
    holds, trained, again, saves = dict[str, int](), Counter[int](), Counter[int](), list[int]()
    asked = 0
    for who, what in [*turns, *((each % 6, "go") for each in range(1000))]:
        name = f"trainer-{who}-{deaths[who]}"
        if what == "die":
            if name in holds:
                again[holds.pop(name)] += 1
            leases.dropped(name)
            deaths[who] += 1
        elif name in holds:
            trained[holds[name]] += 1
            leases.push(name, holds.pop(name))
        elif (found := leases.found(name)) is not None:
            asked += 1
            if "save" in found:
                assert not holds
                assert set(trained) == set(range(found["save"]))
                saves.append(found["save"])
                leases.saved(name, found["save"])
            elif "batch" in found:
                holds[name] = found["batch"]
                assert found["batch"] // trainers - min(holds.values()) // trainers <= staleness
                assert found["lag"] <= staleness
    assert asked > 1
    assert trained == Counter(range(total))
    assert leases.repeated == sum(again.values())
    assert max(leases.lags) <= staleness
    assert saves == sorted(set(saves))
    assert saves[-1] == total


def test_who_writes_the_model_is_chosen_once_all_trainers_have_come() -> None:
    """Who ends all batches before the first trainer has come, which cuts the log as it comes, does not write it."""
    leases = BatchLeases(2, 1, 0.4, total=1)
    leases.push("trainer-1", leases.lease("trainer-1")["batch"])  # type: ignore[index]
    assert leases.drained("trainer-1") is None
    leases.alive("trainer-joined-a")  # another one is not the one that the job began with
    assert leases.drained("trainer-1") is None
    leases.alive("trainer-0")
    assert [leases.drained(f"trainer-{each}")["mine"] for each in (1, 0)] == [False, True]  # type: ignore[index]
    alone = BatchLeases(2, 1, 0.4, total=1)
    alone.ended = lambda: {"trainer-0"}
    alone.push("trainer-1", alone.lease("trainer-1")["batch"])  # type: ignore[index]
    assert alone.drained("trainer-1")["mine"]  # type: ignore[index]


def together(*calls: Callable[[], object]) -> list[object]:
    """What calls return that wait for each other."""
    answers: list[object] = [None] * len(calls)

    def run(number: int) -> None:
        for _ in range(100):
            answers[number] = calls[number]()
            if answers[number] is not None:
                return

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_a_trainer_that_is_silent_is_left_out() -> None:
    members = Members(3, timeout_s=0.4)
    names = ("a", "b", "c")
    places = together(*(lambda name=name: members.gather(name) for name in names))
    assert sorted(place["rank"] for place in places) == [0, 1, 2]  # type: ignore[index]
    assert {place["world"] for place in places} == {3}  # type: ignore[index]
    generation = members.generation
    assert together(*(lambda name=name: members.commit(name, generation, 0) for name in names)) == [True] * 3
    assert members.commit("a", generation, 0) is True  # asked again
    dead = next(name for name, rank in members.ranks.items() if rank == 1)
    living = [name for name in names if name != dead]
    said = together(*(lambda name=name: void(members, name, generation, 1) for name in living))
    assert said == ["void"] * 2
    assert members.lost == [dead]
    assert members.alive(living[0], generation)["broken"]
    places = together(*(lambda name=name: members.gather(name) for name in living))
    assert sorted((place["rank"], place["world"], place["step"]) for place in places) == [(0, 2, 1), (1, 2, 1)]  # type: ignore[index]
    assert not members.alive(living[0], members.generation)["broken"]
    for call in (members.gather, members.alive, lambda name: members.commit(name, generation, 1)):
        with pytest.raises(LeftOut, match=rf"^{dead} was silent for more than 0.4 s \(remote.timeout_s\), .* --join$"):
            call(dead)

    # one joins: the others hear of it when they commit, and all gather
    def step_and_gather(name: str) -> object:
        return members.gather(name) if void(members, name, members.generation, 1) == "void" else None

    places = together(lambda: members.gather("d"), *(lambda name=name: step_and_gather(name) for name in living))
    assert next(place["rank"] for place in places) == 2  # type: ignore[index]
    assert {place["world"] for place in places} == {3}  # type: ignore[index]


def test_who_ended_before_it_was_ever_heard_is_not_waited_for() -> None:
    members = Members(3, timeout_s=0.4)
    members.ended = lambda: {"b"}
    places = together(lambda: members.gather("a"), lambda: members.gather("c"))
    assert sorted((place["rank"], place["world"]) for place in places) == [(0, 2), (1, 2)]  # type: ignore[index]
    assert members.lost == ["b"]
    members.ended = lambda: {"b", next(name for name, rank in members.ranks.items() if rank == 1)}
    [stays] = [name for name, rank in members.ranks.items() if rank == 0]
    begun = time.monotonic()
    assert void(members, stays, 1, 0) == "void"
    assert time.monotonic() - begun < 0.3  # sooner than its silence would tell


def test_who_joined_and_ended_is_noticed_at_once(tmp_path: Path) -> None:
    """Its process held a lock as long as it lived; one that left by itself is not lost."""
    for name, file in {"trainer-0": ENDED, "trainer-1": "job.json", "trainer-joined-a": ALIVE}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / file).touch()
    with (tmp_path / "trainer-joined-a" / ALIVE).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert ended_in(tmp_path) == {"trainer-0"}
    assert ended_in(tmp_path) == {"trainer-0", "trainer-joined-a"}
    assert ended_in(tmp_path / "elsewhere") == set()


@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("staleness", [0, 2])
def test_who_joined_leaves_or_is_lost(staleness: int, leaves: bool) -> None:
    name, made = "trainer-joined-a", BatchLeases(1, 2, 0.4) if staleness else Members(1, timeout_s=0.4)
    if isinstance(made, BatchLeases):
        assert (made.lease("a"), made.lease(name)) == ({"batch": 0, "lag": 0}, {"batch": 1, "lag": 1})
    else:
        made.gather("a")
        together(lambda: made.gather("a") if made.changed("a", 1) else None, lambda: made.gather(name))
    assert made.changes() == {"lost": [], "joined": [name], "left": [], "trainers": 2}
    if leaves:
        made.depart(name)
        made.alive(name)  # a sign of life that was under way
    made.ended = lambda: {name}
    made.alive("a")
    expected = {"lost": [] if leaves else [name], "left": [name] if leaves else [], "joined": [name]}
    assert made.changes() == {**expected, "trainers": 1}
    assert made.alive("a", 2)["broken"] == (not staleness)
    if isinstance(made, BatchLeases):
        assert made.lease("a") == {"batch": 1, "lag": 1}


def test_nobody_is_waited_for_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that are wanted one never comes; and of two that gather anew one lives and does not come."""
    monkeypatch.setattr("recsmith.training.systems.remote.members.LONG", 3)
    members = Members(2, timeout_s=0.4)
    [place] = together(lambda: members.gather("a"))
    assert place["world"] == 1  # type: ignore[index]
    members = Members(2, timeout_s=0.4)
    together(lambda: members.gather("a"), lambda: members.gather("b"))
    beating = threading.Event()

    def beat() -> None:
        while not beating.wait(0.02):
            with suppress(LeftOut):
                members.alive("b")

    living = threading.Thread(target=beat)
    living.start()
    until = time.monotonic() + 60
    members._regroup = True
    place = None
    while place is None and time.monotonic() < until:
        place = members.gather("a")
    beating.set()
    living.join()
    assert place is not None
    assert (place["world"], place["lost"]) == (1, ["b"])


def test_who_lives_and_never_pushes_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose reader hangs, say: in step, and with leases; also who saves for ever."""
    for module in ("members", "leases"):
        monkeypatch.setattr(f"recsmith.training.systems.remote.{module}.LONG", 3)
    members = Members(2, timeout_s=0.4)
    together(lambda: members.gather("a"), lambda: members.gather("b"))
    leases, saving = BatchLeases(2, 1, 0.4), BatchLeases(1, 1, 0.4, every=1)
    assert leases.lease("b") == {"batch": 0, "lag": 0}
    saving.push("b", saving.lease("b")["batch"])  # type: ignore[index]
    assert saving.lease("b") == {"save": 1}
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(0.02):
            for each, name in [(each, name) for each in (members, leases, saving) for name in ("a", "b")]:
                with suppress(LeftOut):
                    each.alive(name)

    living = threading.Thread(target=beat, daemon=True)
    living.start()
    until, gone, again, saver = time.monotonic() + 60, None, None, None
    while time.monotonic() < until and not (gone and saver and again == {"batch": 0, "lag": 0}):
        gone = gone or void(members, "a", 1, 0)
        if again != {"batch": 0, "lag": 0} and (again := leases.lease("a")) and again["batch"]:
            leases.push("a", again["batch"])
        saver = saver or saving.lease("a")
    ended.set()
    living.join()
    assert (gone, again, saver) == ("void", {"batch": 0, "lag": 0}, {"save": 1})
    assert members.lost == leases.lost == saving.lost == ["b"]
    assert leases.repeated == 1


def void(members: Members, name: str, generation: int, step: int) -> object:
    """What becomes of a step."""
    try:
        return members.commit(name, generation, step)
    except Regroup:
        return "void"


def test_trainers_that_cannot_share_a_step_wait() -> None:
    """Of three where two or four share, the last waits; it is called when another is left out, and told of the end."""
    members = Members(2, timeout_s=0.4, can_share=lambda count: count in (1, 2, 4))
    together(lambda: members.gather("a"), lambda: members.gather("b"))
    assert members.gather("c") is None
    assert (members.generation, sorted(members.ranks)) == (1, ["a", "b"])
    members.alive("c")
    gone, stays = sorted(members.ranks, key=members.ranks.__getitem__)
    time.sleep(0.5)
    members.alive(stays)  # nobody was heard meanwhile: as if the server had been stopped, so nobody is left out
    assert not members.lost
    places = together(
        lambda: members.gather(stays) if void(members, stays, 1, 0) == "void" else None, lambda: members.gather("c")
    )
    assert members.lost == [gone]
    assert [(place["rank"], place["world"]) for place in places] == [(0, 2), (1, 2)]  # type: ignore[index]
    assert members.gather("d") is None
    members.leave(stays)
    assert members.gather("d") == {"over": 0, "lost": [gone]}


def test_servers_write_together_or_not_at_all() -> None:
    """One that waits hears of the others; one that was asked alone does not wait long, nor who is asked after that."""
    dist = pytest.importorskip("torch.distributed")
    from recsmith.training.systems.remote.asked import ServersAsked

    asked = ServersAsked(dist.HashStore(), 2, timeout_s=0.2)
    assert together(lambda: asked.all("first"), lambda: time.sleep(0.05) or asked.all("first")) == [True, True]
    assert not asked.all("second")
    assert not asked.all("second"), "the other has given up"
    assert together(lambda: asked.all("third"), lambda: asked.all("third")) == [True, True]


def test_progress_of_trainers_that_wait_for_nobody_is_that_of_the_job() -> None:
    """How far and how fast all are, beside the batches of the one that tells it."""
    pytest.importorskip("torchrec")
    from recsmith.training.job.log import progress_text
    from recsmith.training.systems.remote.stale import lags_line

    scores = {"samples": 1, "logloss": 0.5, "ne": 0.9, "calibration": 1.0, "auc": 0.7}
    said = progress_text({
        "step": 218, "steps": 600, "scores": scores, "samples_per_s": 9000.0, "step_s": 0.04, "own_batches": 200,
        "batches": 436, "lag": 1, "parts_s": {"data": 0.01}, "left_s": 13.0,
    })  # fmt: skip
    assert said.startswith("step 218/600: ")
    assert "9,000 samples/s of all trainers (this one: 200 of 436 batches, the newest with rows 1 step behind; " in said
    told = lags_line({"batches": 120, "lags": {"0": 101, "2": 5, "1": 15}}, 58)
    assert told.endswith("58 of this one; their rows lagged by no step in 101, by 1 step in 15, by 2 steps in 5")
