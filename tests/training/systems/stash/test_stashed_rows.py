"""Jobs whose tables rest train to the bit as they would without, resume so, and are told what they hold."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.systems import needs_systems
from support.two_table_jobs import a_run

import recsmith
from recsmith.errors import PlanMismatch, UsageError
from recsmith.plans import load_plan

pytestmark = pytest.mark.usefixtures("torchrec")


def stashed(folder: Path, **settings: Any) -> dict[str, Any]:
    return {"name": "stashed", "folder": str(folder / "rows"), **settings}


def logged(output: str) -> list[tuple[int, Any]]:
    lines = [json.loads(line) for line in (Path(output) / "log.jsonl").read_text().splitlines()]
    return [(line["step"], line["scores"]) for line in lines if line.get("event") == "train"]


@pytest.mark.parametrize(("ranks", "what"), [(1, "weights"), (2, "weights_and_state")])
def test_a_job_trains_to_the_bit_as_it_does_without_and_resumes_so(tmp_path: Path, ranks: int, what: str) -> None:
    from recsmith.training import train

    plain = a_run(tmp_path, ranks=ranks)
    train(plain)
    rests = replace(plain, output=str(tmp_path / "rests"), rows=stashed(tmp_path, what=what))
    train(replace(rests, steps=7))  # which ends as one that was killed behind its last checkpoint goes on
    result = train(rests)
    assert result["step"] == 12
    assert " of this rank rested while dense layers worked; copies took " in result["brought"]["rows"]
    whole, found = ((Path(each.output) / "model/weights.safetensors").read_bytes() for each in (plain, rests))
    assert whole == found
    assert b"nan" not in whole[:100]
    assert list((tmp_path / "rows").iterdir()) == []


def test_kernels_leave_behind_a_lookup_and_are_back_for_the_update() -> None:
    """What leaves is away while a gradient is awaited, and a lookup without one leaves nothing."""
    import torch
    from torch import nn

    from recsmith.training.systems.stash.rows import _rests  # pyright: ignore[reportPrivateUsage]

    class Noted:
        def __init__(self) -> None:
            self.said: list[str] = []

        def leave(self) -> None:
            self.said.append("leave")

        def come_back(self) -> None:
            self.said.append("back")

    table, noted = nn.EmbeddingBag(10, 4), Noted()
    _rests(table, noted)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    out = table(torch.tensor([[1, 2]]))
    assert noted.said == ["back", "leave"]
    out.sum().backward()
    assert noted.said == ["back", "leave", "back"]
    with torch.no_grad():
        table(torch.tensor([[1, 2]]))
    assert noted.said == ["back", "leave", "back", "back"]


def test_a_dry_run_tells_what_rests_and_counts_activations_where_it_was(tmp_path: Path) -> None:
    from recsmith.training.launch.dry_run import described

    plain = a_run(tmp_path)
    without, found = described(plain), described(replace(plain, rows=stashed(tmp_path)))
    assert any("of the rank with most rest in a file" in line for line in found.lines)
    before, after = without.memory[0], found.memory[0]
    assert after.freed == before.total - after.total > 0
    assert after.file == 5000 * 8 * 4
    assert found.step is not None
    assert without.step is not None
    assert found.step.step_s > without.step.step_s


def test_it_is_left_off_or_said_not_to_pay_where_all_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from recsmith.training.launch.dry_run import described

    plain = a_run(tmp_path)
    found, without = described(replace(plain, rows=stashed(tmp_path, when="auto"))), described(plain)
    assert found.run.rows == "device"
    assert found.step is not None
    assert without.step is not None
    assert found.step.step_s == pytest.approx(without.step.step_s, rel=1e-9)
    assert any(line.startswith("rows: stashed is off: 1 rank and the programs hold") for line in found.lines)
    always = described(replace(plain, rows=stashed(tmp_path)))
    (said,) = [line for line in always.lines if line.startswith("rows: stashed: ")]
    assert "% of a step; it does not pay here, for all fits without: 1 rank and the programs hold" in said
    monkeypatch.setattr("recsmith.training.systems.stash.bytes.memory_limit", lambda: 2**20)
    (said,) = [line for line in described(always.run).lines if line.startswith("rows: stashed: ")]
    assert "does not pay" not in said


def test_a_dry_run_refuses_a_plan_of_tables_of_another_size(tmp_path: Path) -> None:
    from recsmith.planning.simulate import simulate
    from recsmith.plans import save_plan
    from recsmith.training.launch.dry_run import described

    run = a_run(tmp_path)
    plan = load_plan(run.plan)
    wide = tuple(replace(each, embedding_dim=2 * each.embedding_dim) for each in plan.workload.tables)
    other = replace(plan, workload=replace(plan.workload, tables=wide), digest="")
    save_plan(simulate(other, bound=False), run.plan)
    with pytest.raises(PlanMismatch, match=r"has \d+ x 8 weights in the model and \d+ x 16 in the plan"):
        described(run)


def test_tables_of_the_plan_that_rest_are_those_that_do(tmp_path: Path) -> None:
    from recsmith.planning.simulate import simulate
    from recsmith.plans import save_plan
    from recsmith.training.launch.dry_run import described

    run = a_run(tmp_path)
    plan = load_plan(run.plan)
    rest = tuple(replace(each, stash="weights" if each.table == "b" else None) for each in plan.placements)
    save_plan(simulate(replace(plan, placements=rest, digest=""), bound=False), run.plan)
    found = described(replace(run, rows=stashed(tmp_path)))
    assert found.run.rows["tables"] == ["b"]  # type: ignore[call-overload, index]  # pyright: ignore[reportArgumentType, reportIndexIssue, reportCallIssue]
    assert found.memory[0].file == 2000 * 8 * 4
    with pytest.raises(UsageError, match=r"rows\.tables names 'bb', which the model does not have; did you mean 'b'"):
        described(replace(run, rows=stashed(tmp_path, tables=["bb"])))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"what": "all"}, "rows.what is all"),
        ({"when": "never"}, "rows.when is never"),
        ({"tables": []}, "is empty"),
        ({"tables": "b"}, r"rows.tables is 'b'; give a list of tables: \[b\]"),
    ],
)
def test_settings_that_there_are_not_are_refused(tmp_path: Path, settings: dict[str, Any], told: str) -> None:
    from recsmith.training.systems.stash.rows import StashedRows

    with pytest.raises(UsageError, match=told):
        StashedRows.check_settings(folder=str(tmp_path), **settings)


def test_explained_memory_counts_the_layers_of_a_run(tmp_path: Path) -> None:
    from recsmith.problems.memory_schedule import KINDS
    from recsmith.training.job.dense_bytes import memory_of_run

    run = a_run(tmp_path)
    found, _ = memory_of_run(run, run.plan)
    assert found.dense.activations > 0
    with pytest.raises(PlanMismatch, match=r"table 'a' is one that the model has and the plan '.*' does not place"):
        memory_of_run(run, recsmith.plan("dlrm-v2", "h100:8", planner="size_greedy").plan)
    assert found.schedule.bytes[:, KINDS.index("dense layers"), 0].min() == found.dense.fixed > 0


@pytest.mark.parametrize(("tables", "rows"), [(None, 5000), (["b"], 2000)])
def test_explained_memory_tells_what_rests_as_the_run_says(tmp_path: Path, tables: Any, rows: int) -> None:
    from recsmith.problems.memory_schedule import AT_REST, PHASES
    from recsmith.training.job.dense_bytes import memory_of_run

    run = a_run(tmp_path)
    home, _ = memory_of_run(run, run.plan)
    found, _ = memory_of_run(replace(run, rows=stashed(tmp_path, tables=tables)), run.plan)
    freed = dict(zip(PHASES, (home.schedule.totals - found.schedule.totals)[:, 0], strict=True))
    assert freed == {phase: (rows * 8 * 4 if phase in AT_REST else 0) for phase in PHASES}
    assert found.rests is not None
    assert found.rests.weights == (rows * 8 * 4,)
    undecided, _ = memory_of_run(replace(run, rows=stashed(tmp_path, when="auto")), run.plan)
    assert undecided.rests is None


@needs_systems("tiers")
def test_explained_memory_has_caches_in_place_of_tables_in_files(tmp_path: Path) -> None:
    from recsmith.problems.memory_schedule import KINDS
    from recsmith.training.job.dense_bytes import memory_of_run

    run = replace(a_run(tmp_path), rows={"name": "tiered", "folder": str(tmp_path / "rows"), "cache": 0.1})
    found, _ = memory_of_run(run, run.plan)
    held = {kind: int(found.schedule.bytes[0, KINDS.index(kind), 0]) for kind in ("weights", "cache")}
    assert held["weights"] == 0
    assert 500 * 8 * 4 <= held["cache"] < 5000 * 8 * 4 / 2
