"""Plans in a folder: nothing is lost or half written, whoever writes, is killed, or finds the disk full."""

import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.served import Client, client_of

import recsmith
from recsmith.plans.files import load_plan
from recsmith.web.serving.edits import DraftChange, EditStep, PieceMove
from recsmith.web.serving.folder import PlanFolder
from recsmith.web.serving.folder_files import beside, default_folder
from recsmith.web.serving.sessions import PlanShelf
from recsmith.web.serving.settings import Refused, Settings
from recsmith.web.serving.views import kept_plan, plan_summary

MOVE = DraftChange(steps=(EditStep(move=PieceMove(table="table_0000", rank=1)),), done=1)


def folder_of(path: Path) -> PlanFolder:
    return PlanFolder(path, Settings(token="x"), plan_summary)


@pytest.fixture
def folder(tmp_path: Path) -> PlanFolder:
    return folder_of(tmp_path / "plans")


def names(folder: PlanFolder) -> list[str]:
    return [each.name for each in folder.listing().plans]


def test_a_plan_is_a_file_that_every_command_reads_and_its_id_follows_from_it(folder: PlanFolder, plan: recsmith.Plan):
    key = folder.put(kept_plan(plan, "clicks on h100:8", "planner auto", question={"planner": "auto"}))
    assert key == "clicks-on-h100-8"
    assert load_plan(folder.path / f"{key}.json") == plan
    recsmith.save_plan(plan, folder.path / "of the CLI, 2.json")
    again = folder_of(folder.path)  # a server that is started anew
    found = {each.id: each.name for each in again.listing().plans}
    assert found.pop(key) == "clicks on h100:8"
    ((other, name),) = found.items()
    assert (name, again.get(other).plan) == ("of the CLI, 2", plan)
    assert other.isascii()
    assert not set(other) & set(" ,./#")
    assert again.get(key).card.question == {"planner": "auto"}


def test_names_notes_and_deletion_leave_the_address_as_it_is(folder: PlanFolder, plan: recsmith.Plan):
    key, other = (folder.put(kept_plan(plan, "clicks", "by hand")) for _ in range(2))
    assert (key, other) == ("clicks", "clicks-2")
    folder.change(key, "the one we run", "since May")
    folder.keep_draft(key, MOVE)
    folder.drop(key)
    assert names(folder) == ["clicks"]
    assert [each.name for each in folder.listing().deleted] == ["the one we run"]
    with pytest.raises(Refused, match="no plan 'clicks' is kept here"):
        folder.get(key)
    assert folder.restore(key) == key
    assert (folder.get(key).card.name, folder.get(key).card.note) == ("the one we run", "since May")
    assert folder.draft(key).steps == MOVE.steps
    assert folder_of(folder.path).draft(key) == folder.draft(key)


def test_a_plan_kept_in_memory_is_restored_with_its_draft(plan: recsmith.Plan):
    shelf = PlanShelf(4, plan_summary)
    key, other = (shelf.put(kept_plan(plan, "clicks", "by hand")) for _ in range(2))
    shelf.keep_draft(key, MOVE)
    shelf.drop(key)
    shelf.keep_draft(other, MOVE)
    assert shelf.draft(shelf.restore(key)).steps == MOVE.steps


def test_a_deleted_plan_comes_back_beside_one_that_took_its_name(folder: PlanFolder, plan: recsmith.Plan):
    key = folder.put(kept_plan(plan, "clicks", "first"))
    folder.drop(key)
    recsmith.save_plan(plan, folder.path / "clicks.json")  # the command line
    assert folder.restore(key) == "clicks-2"
    assert {each.id: each.origin for each in folder.listing().plans} == {
        "clicks": "file clicks.json", "clicks-2": "first"}  # fmt: skip


def test_a_deletion_that_was_killed_half_way_is_undone_whole(folder: PlanFolder, plan: recsmith.Plan):
    key = folder.put(kept_plan(plan, "clicks", "first"))
    folder.change(key, None, "a note")
    (folder.path / "deleted").mkdir()
    (folder.path / f"{key}.json").rename(folder.path / "deleted" / f"{key}.json")  # its card is not moved yet
    assert folder.restore(key) == key
    assert folder.get(key).card.note == "a note"


def test_what_is_being_written_or_damaged_is_never_shown_as_a_plan(folder: PlanFolder, plan: recsmith.Plan):
    key = folder.put(kept_plan(plan, "clicks", "first"))
    whole = (folder.path / "clicks.json").read_text()
    (folder.path / ".clicks.json.a1b2c3d4").write_text(whole[:500])  # as a killed process leaves it
    (folder.path / "tables.json").write_text('{"schema": "recsmith/workload/1"}')
    (folder.path / "half.json").write_text(whole[:500])
    beside(folder.path / "clicks.json", ".kept.json").write_text("{")
    found = folder.listing()
    assert [each.id for each in found.plans] == [key]
    assert "cannot be read" in found.plans[0].notes[0]
    assert [each.file for each in found.unread] == ["half.json"]
    with pytest.raises(recsmith.RecSmithError):  # nothing that somebody could still mend is overwritten
        folder.change(key, "other", None)
    assert beside(folder.path / "clicks.json", ".kept.json").read_text() == "{"


def test_old_remains_of_killed_processes_are_swept_and_young_ones_are_not(folder: PlanFolder):
    old, young = (folder.path / f".x.json.{ending}" for ending in ("aaaaaaaa", "bbbbbbbb"))
    for each in (old, young):
        each.write_text("{")
    ago = time.time() - 7200
    os.utime(old, (ago, ago))
    folder_of(folder.path)
    assert not old.exists()
    assert young.exists()


def test_a_draft_that_was_changed_elsewhere_is_not_overwritten(folder: PlanFolder, plan: recsmith.Plan):
    key = folder.put(kept_plan(plan, "clicks", "first"))
    mine, theirs = folder, folder_of(folder.path)  # two servers
    first = mine.keep_draft(key, MOVE)
    second = theirs.keep_draft(key, DraftChange(steps=MOVE.steps * 2, done=1, base=first.version))
    with pytest.raises(Refused, match="changed by hand in another window") as caught:
        mine.keep_draft(key, DraftChange(steps=(), base=first.version))
    assert caught.value.status == 409
    assert mine.draft(key) == second
    mine.keep_draft(key, DraftChange(base=second.version))
    assert not beside(folder.path / "clicks.json", ".draft.json").exists()


def test_a_damaged_draft_hides_no_plan_and_is_laid_aside(folder: PlanFolder, plan: recsmith.Plan):
    key = folder.put(kept_plan(plan, "clicks", "first"))
    file = beside(folder.path / "clicks.json", ".draft.json")
    file.write_text("{")
    found = folder.draft(key)
    assert found.steps == ()
    folder.keep_draft(key, DraftChange(steps=MOVE.steps, done=1, base=found.version))
    assert folder.draft(key).steps == MOVE.steps
    assert file.with_name(f"{file.name}.damaged").read_text() == "{"


def test_two_servers_that_keep_plans_at_once_keep_all(folder: PlanFolder, plan: recsmith.Plan):
    servers, kept = [folder, folder_of(folder.path)], list[str]()

    def put(server: PlanFolder) -> None:
        kept.extend(server.put(kept_plan(plan, "clicks", "at once")) for _ in range(6))

    threads = [threading.Thread(target=put, args=(servers[at % 2],)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(kept)) == 24
    assert {each.id for each in folder.listing().plans} == set(kept)


@contextmanager
def no_room() -> Iterator[None]:
    """Files cannot grow, as on a full disk: the kernel refuses each write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_on_a_full_disk_what_is_there_stays_and_a_found_plan_waits_for_room(folder: PlanFolder, plan: recsmith.Plan):
    key = folder.put(kept_plan(plan, "clicks", "first"))
    before = {each.name: each.read_bytes() for each in folder.path.iterdir()}
    with no_room():
        with pytest.raises(Refused, match="cannot be written") as caught:
            folder.change(key, "other", None)
        assert caught.value.status == 507
        with pytest.raises(Refused, match="cannot be written"):
            folder.keep_draft(key, MOVE)
        waiting = folder.put(kept_plan(plan, "found by a long search", "planner auto"))
        assert "cannot be written" in folder.get(waiting).unwritten
        assert names(folder) == ["clicks", "found by a long search"]
        assert [each.name for each in folder.unwritten()] == ["found by a long search"]
    assert {name: (folder.path / name).read_bytes() for name in before} == before
    assert {each.name for each in folder.path.iterdir()} == set(before)
    assert folder.unwritten() == ()  # there is room again
    assert folder.listing().plans[1].unwritten == ""
    assert folder_of(folder.path).get(waiting).plan == plan


def test_a_plan_that_waits_for_room_keeps_its_id_and_can_be_named(folder: PlanFolder, plan: recsmith.Plan):
    with no_room():
        key = folder.put(kept_plan(plan, "clicks", "first"))
        folder.change(key, "found at night", "a note")
        assert folder.get(key).card.note == "a note"
        with pytest.raises(Refused, match="cannot be written") as caught:
            folder.keep_draft(key, MOVE)
        assert caught.value.status == 507
    other = folder.put(kept_plan(plan, "clicks", "second"))
    assert [folder.get(each).card.origin for each in (key, other)] == ["first", "second"]
    assert folder_of(folder.path).get(key).name == "found at night"
    assert folder.keep_draft(key, MOVE).done == 1


def test_a_draft_that_the_system_does_not_read_counts_as_damaged(folder: PlanFolder, plan: recsmith.Plan):
    key = folder.put(kept_plan(plan, "clicks", "first"))
    (folder.path / f"{key}.draft.json").mkdir()
    assert folder.draft(key).version == "damaged"
    assert folder.keep_draft(key, replace(MOVE, base="damaged")).done == 1


def test_a_draft_takes_the_lock_of_plans_in_memory_before_the_turn_as_who_writes_these(
    folder: PlanFolder, plan: recsmith.Plan, monkeypatch: pytest.MonkeyPatch
):
    key, read, turns = folder.put(kept_plan(plan, "clicks", "first")), folder._plan, list[int]()

    def read_plan(path: Path) -> recsmith.Plan:
        turns.append(folder.turn.depth)
        return read(path)

    monkeypatch.setattr(folder, "_plan", read_plan)
    assert folder.keep_draft(key, MOVE).plan == plan.digest
    assert turns == [0]


WRITER = """
import os, sys, time
from pathlib import Path
from recsmith.plans.files import load_plan
from recsmith.web.serving.edits import DraftChange, EditStep, PieceMove
from recsmith.web.serving.folder import PlanFolder
from recsmith.web.serving.settings import Settings
from recsmith.web.serving.views import kept_plan, plan_summary
plan, path, kills = load_plan(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
for number in range(kills):
    child = os.fork()
    print("child", child, flush=True) if child else None
    if not child:
        folder, done = PlanFolder(path, Settings(token="x"), plan_summary), 0
        while True:
            key = folder.put(kept_plan(plan, f"{number} {done}", "loop"))
            folder.change(key, None, f"note {done}")
            step = EditStep(move=PieceMove(table="table_0000", rank=done % 4))
            folder.keep_draft(key, DraftChange(steps=(step,), done=1))
            if done % 3 == 2:
                folder.drop(key)
            os.write(1, f"{key} {done}\\n".encode())
            done += 1
    os.waitpid(child, 0)
"""


def test_kill_9_at_any_instant_loses_nothing(folder: PlanFolder, plan: recsmith.Plan, plan_text: str, tmp_path: Path):
    """Processes that write are killed one after the other; what each had said it wrote is there, and nothing half."""
    (tmp_path / "plan.json").write_text(plan_text)
    command = [sys.executable, "-c", WRITER, str(tmp_path / "plan.json"), str(folder.path), "8"]
    said: dict[str, int] = {}
    draw, child, left = random.Random(0), 0, 0  # left: acts that a child has said it did, until it is killed
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            first, second = line.split()
            if first == "child":
                child, left = int(second), draw.randint(2, 5)
                continue
            said[first], left = int(second), left - 1
            if left == 0:
                threading.Timer(draw.random() / 30, os.kill, (child, signal.SIGKILL)).start()
    assert len(said) >= 16
    found = folder.listing()
    assert found.unread == ()
    here, gone = {each.id for each in found.plans}, {each.id for each in found.deleted}
    for key, done in said.items():
        assert key in (gone if done % 3 == 2 else here)
    for key in here:
        assert folder.get(key).plan == plan
    for key in here & set(said):
        assert folder.get(key).card.note == f"note {said[key]}"
        assert folder.draft(key).steps[0].move == PieceMove(table="table_0000", rank=said[key] % 4)


def test_the_folder_of_a_user_follows_the_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "recsmith" / "plans"
    monkeypatch.setenv("XDG_DATA_HOME", "not/absolute")  # which the rules of XDG have programs pass over
    assert default_folder().is_relative_to(Path.home())


# --- the same through the API -------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path) -> Client:
    return client_of(folder=str(tmp_path / "plans"))


def test_clients_share_the_plans_of_a_folder_and_each_is_told_of_the_other(
    kept: Client, plan_text: str, tmp_path: Path
):
    key = kept.upload(plan_text, "clicks.json").json()["plan"]["id"]
    other = client_of(folder=str(tmp_path / "plans"))
    asked: list[tuple[str, str, dict[str, Any], int]] = [
        ("PATCH", "", {"name": "ours", "note": "two\nlines"}, 200), ("PATCH", "", {"name": "  "}, 400),
        ("PATCH", "", {"name": "x" * 201}, 400), ("POST", "/copies", {}, 201),
        ("POST", "/copies", {"name": "theirs"}, 201),
        ("PUT", "/draft", {"steps": [{"changes": {"batch_size": 64}}], "done": 1}, 200),
        ("PUT", "/draft", {"steps": [{}], "done": 0}, 422), ("PUT", "/draft", {"steps": [], "done": 2}, 422),
        ("PUT", "/draft", {"steps": [], "done": 0, "base": "another"}, 409),
    ]  # fmt: skip
    for method, path, body, status in asked:
        answer = kept.ask(method, f"/api/plans/{key}{path}", json=body)
        assert answer.status_code == status, (path, body, answer.text)
    seen = other.ask("GET", f"/api/plans/{key}").json()
    assert (seen["summary"]["name"], seen["summary"]["note"]) == ("ours", "two\nlines")
    assert seen["draft"]["steps"][0]["changes"]["batch_size"] == 64
    plans = {each["name"]: each for each in other.ask("GET", "/api/kept").json()["plans"]}
    assert set(plans) == {"ours", "ours, copy", "theirs"}
    assert plans["theirs"]["parent"] == key
    assert kept.ask("DELETE", f"/api/plans/{key}").status_code == 204
    assert [each["id"] for each in other.ask("GET", "/api/kept").json()["deleted"]] == [key]
    assert other.ask("POST", f"/api/plans/{key}/restore").json()["name"] == "ours"


def test_a_file_that_another_program_replaced_is_priced_as_it_is_now(kept: Client, plan: recsmith.Plan, tmp_path: Path):
    path = tmp_path / "plans" / "clicks.json"
    recsmith.save_plan(plan, path)
    assert kept.ask("POST", "/api/plans/clicks/price", json={}).json()["cost"]["total_s"] == plan.cost.total_s
    slower = recsmith.plan(plan.workload, plan.cluster, planner="cost_greedy").plan
    assert slower.cost.total_s != plan.cost.total_s
    recsmith.save_plan(slower, path)
    assert kept.ask("POST", "/api/plans/clicks/price", json={}).json()["cost"]["total_s"] == slower.cost.total_s


def test_downloads_are_called_as_their_plans_are(kept: Client, plan_text: str):
    key = kept.upload(plan_text, "clicks.json").json()["plan"]["id"]
    kept.ask("PATCH", f"/api/plans/{key}", json={"name": "Größe: a/b"})
    said = kept.ask("GET", f"/api/plans/{key}/file").headers["content-disposition"]
    assert said == "attachment; filename=\"Groe-a-b.json\"; filename*=UTF-8''Gr%C3%B6%C3%9Fe-%20a-b.json"


def test_what_each_table_costs_is_what_the_report_says(kept: Client, plan_text: str, plan: recsmith.Plan):
    from recsmith.web.report_data import report_data

    key = kept.upload(plan_text, "clicks.json").json()["plan"]["id"]
    found = kept.ask("GET", f"/api/plans/{key}/seconds").json()["seconds"]
    told = {table.name: table.seconds for table in report_data(plan).tables}
    assert found == pytest.approx(told, rel=1e-3)
    assert max(found.values()) > 0
