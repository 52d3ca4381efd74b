"""Plan files: they read back, stand for any order of the tables, and refuse every edit that does not hold together."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.build import cluster, placed, plan_of, table, workload

from recsmith.errors import CorruptFile, PlanMismatch, UsageError
from recsmith.files import dump_json, parse
from recsmith.planning import plan
from recsmith.plans import Cache, Placement, Plan, digest_of, load_plan, plan_from_raw, plan_to_raw, save_plan
from recsmith.plans import files as plan_files
from recsmith.plans.rank_runs import RUNS, ranks_from, runs_of

WORK = workload(
    table("cw"), table("dp", 7), table("gs"), table("rw", 10), table("seq", pooling="none"), table("trw"), table("tw")
)
PLACEMENTS = (
    placed("cw", "column_wise", [3, 0], [8, 24]),
    placed("dp", "data_parallel", [0, 1, 2, 3], kernel="dense"),
    placed("gs", "grid_shard", [2, 3, 0, 1], [16, 16]),
    placed("rw", "row_wise", [0, 1, 2, 3]),
    placed("seq", "column_wise", [1, 1], [16, 16]),
    placed("trw", "table_row_wise", [2, 3]),
    Placement(
        table="tw", sharding_type="table_wise", compute_kernel="fused_uvm_caching", ranks=(1,),
        cache=Cache(load_factor=0.25),
    ),
)  # fmt: skip


@pytest.fixture
def made() -> Plan:
    return plan_of(WORK, cluster(hosts=2, local=2), *PLACEMENTS)


@pytest.fixture
def raw(made: Plan) -> dict[str, Any]:
    return plan_to_raw(made)


# --- round trips --------------------------------------------------------------------------------------------------


def test_a_plan_reads_back(made: Plan, tmp_path: Path):
    path = str(tmp_path / "plan.json")
    save_plan(made, path)
    assert load_plan(path) == made
    save_plan(load_plan(path), str(tmp_path / "again.json"))
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "plan.json").read_bytes()


def test_a_planned_plan_reads_back(tmp_path: Path):
    result = plan("criteo-kaggle", "h100:2x2")
    save_plan(result.plan, str(tmp_path / "plan.json"))
    assert load_plan(str(tmp_path / "plan.json")) == result.plan


@pytest.mark.parametrize("absent", [("digest",), ("shards",), ("versions",), ("digest", "shards", "versions")])
def test_derived_fields_may_be_absent(made: Plan, raw: dict[str, Any], absent: tuple[str, ...]):
    for key in absent:
        del raw[key]
    assert plan_from_raw(raw, "p") == made


def test_many_shards_are_left_out(made: Plan, monkeypatch: pytest.MonkeyPatch):
    assert plan_files.MOST_SHARDS == 250_000
    monkeypatch.setattr(plan_files, "MOST_SHARDS", 19)
    assert len(plan_to_raw(made)["shards"]) == 19
    monkeypatch.setattr(plan_files, "MOST_SHARDS", 18)
    assert [each["ranks"] for each in plan_to_raw(made)["placements"][:4]] == ["3, 0", "0-3", "2-3, 0-1", "0-3"]
    assert "shards" not in plan_to_raw(made)
    assert plan_from_raw(plan_to_raw(made), "p") == made


def test_a_placement_is_written_without_what_it_lacks(raw: dict[str, Any]):
    assert raw["placements"][0] == {
        "table": "cw", "sharding_type": "column_wise", "compute_kernel": "fused", "ranks": [3, 0], "widths": [8, 24],
    }  # fmt: skip
    assert set(placement(raw, "rw")) == {"table", "sharding_type", "compute_kernel", "ranks"}
    assert placement(raw, "tw")["cache"] == {"load_factor": 0.25}


def test_a_plan_holds_no_time_and_no_path(raw: dict[str, Any]):
    assert set(raw) == {
        "schema", "digest", "planner", "cost_model", "gap", "bound", "versions", "constraints", "cluster", "workload",
        "placements", "cost", "shards",
    }  # fmt: skip


def test_own_edits_are_accepted_once_digest_and_shards_are_gone(made: Plan, raw: dict[str, Any]):
    raw["placements"][-1]["ranks"] = [2]
    del raw["digest"], raw["shards"]
    edited = plan_from_raw(raw, "p")
    assert edited.placements[-1].ranks == (2,)
    assert edited.digest not in ("", made.digest)


# --- digest -------------------------------------------------------------------------------------------------------


def test_the_digest_is_the_same_for_any_order_of_the_tables(made: Plan):
    backwards = workload(*reversed(WORK.tables))
    assert digest_of(backwards, made.cluster, {}, made.placements) == made.digest
    assert plan_of(backwards, made.cluster, *PLACEMENTS) == made


def test_the_digest_tells_apart_what_a_job_relies_on(made: Plan):
    others = [
        digest_of(WORK.with_batch_size(17), made.cluster, {}, made.placements),
        digest_of(WORK, cluster(hosts=2, local=2, reserve_bytes=1), {}, made.placements),
        digest_of(WORK, made.cluster, {"widths": "torchrec"}, made.placements),
        digest_of(WORK, made.cluster, {}, made.placements[:-1]),
    ]
    assert len({made.digest, *others}) == 5


def test_the_digest_of_old_files_stays_valid():
    made = plan_of(workload(table("a")), cluster(), placed("a", "table_wise", [0]))
    assert made.digest == "abfbbb65d3e0bc468d4c8e21cf5a382495641ff977bcec29898631dce1c2dd7b"


def test_the_digest_survives_a_change_of_style(made: Plan, raw: dict[str, Any]):
    assert plan_from_raw(parse(json.dumps(raw, indent=4, sort_keys=True), "p.json"), "p") == made


# --- edits by hand ------------------------------------------------------------------------------------------------

Edit = Callable[[dict[str, Any]], Any]


def placement(raw: dict[str, Any], name: str) -> dict[str, Any]:
    return next(item for item in raw["placements"] if item["table"] == name)


def shards(raw: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [item for item in raw["shards"] if item["table"] == name]


MISMATCHES: list[tuple[str, Edit, str]] = [
    (
        "another rank in a placement",
        lambda raw: placement(raw, "tw").update(ranks=[2]),
        "table 'tw': its shards list rank 1 rows [0, 100] columns [0, 32]; the placement gives rank 2",
    ),
    (
        "another rank in a shard",
        lambda raw: shards(raw, "tw")[0].update(rank=3),
        "table 'tw': its shards list rank 3 rows [0, 100] columns [0, 32]; the placement gives rank 1",
    ),
    ("a hole", lambda raw: raw["shards"].remove(shards(raw, "rw")[2]), "table 'rw': its shards leave a hole"),
    ("an overlap", lambda raw: raw["shards"].append(shards(raw, "cw")[0]), "table 'cw': its shards overlap"),
    (
        "a copy too many",
        lambda raw: raw["shards"].insert(0, dict(shards(raw, "dp")[0])),
        "table 'dp': its shards overlap",
    ),
    (
        "columns that reach into the next piece",
        lambda raw: shards(raw, "cw")[0].update(columns=[0, 12]),
        "table 'cw': its shards list rank 3 rows [0, 100] columns [0, 12]",
    ),
    (
        "equal blocks of rows instead of ceil blocks",
        lambda raw: [
            shard.update(rows=rows)
            for shard, rows in zip(shards(raw, "rw"), ([0, 2], [2, 5], [5, 7], [7, 10]), strict=True)
        ],
        "table 'rw': its shards list rank 0 rows [0, 2] columns [0, 32]; the placement gives rank 0 rows [0, 3]",
    ),
    (
        "shards in another order",
        lambda raw: raw["shards"].reverse(),
        "shards stand in another order than their placements",
    ),
    (
        "shards of a table in another order",
        lambda raw: (first := shards(raw, "cw")[0], raw["shards"].remove(first), raw["shards"].insert(1, first)),
        "shards stand in another order than their placements",
    ),
    (
        "a shard of no table",
        lambda raw: shards(raw, "tw")[0].update(table="ghost"),
        "shards name table 'ghost', which the workload does not have",
    ),
    (
        "an unknown rank",
        lambda raw: placement(raw, "tw").update(ranks=[4]),
        "rank 4 is not one of the cluster's 0 .. 3",
    ),
    ("a negative rank", lambda raw: placement(raw, "tw").update(ranks=[-1]), "rank -1 is not one of the cluster's"),
    ("too many ranks", lambda raw: placement(raw, "tw").update(ranks=[0, 1]), "ranks [0, 1] must be 1, one per"),
    ("no rank", lambda raw: placement(raw, "tw").update(ranks=[]), "ranks [] must be 1, one per column piece"),
    (
        "a rank of the world missing",
        lambda raw: placement(raw, "rw").update(ranks=[0, 1, 2]),
        "must be all ranks 0 .. 3",
    ),
    ("ranks out of order", lambda raw: placement(raw, "rw").update(ranks=[1, 0, 2, 3]), "all ranks 0 .. 3 in order"),
    ("ranks of two hosts", lambda raw: placement(raw, "trw").update(ranks=[1, 2]), "the 2 ranks of a host in order"),
    (
        "a width that is no multiple of 4",
        lambda raw: placement(raw, "cw").update(widths=[10, 22]),
        "table 'cw' (column_wise): widths [10, 22] must be multiples of 4",
    ),
    ("a width of 0", lambda raw: placement(raw, "cw").update(widths=[0, 32]), "must be multiples of 4"),
    ("widths with a hole", lambda raw: placement(raw, "cw").update(widths=[8, 20]), "add up to 28, not 32"),
    ("widths that overlap", lambda raw: placement(raw, "cw").update(widths=[8, 28]), "add up to 36, not 32"),
    (
        "widths of a type that does not split",
        lambda raw: placement(raw, "rw").update(widths=[16, 16]),
        "2 column pieces",
    ),
    ("uneven widths of a grid", lambda raw: placement(raw, "gs").update(widths=[8, 24]), "takes equal ones"),
    ("uneven widths of a sequence", lambda raw: placement(raw, "seq").update(widths=[8, 24]), "takes equal ones"),
    (
        "a sequence over a host",
        lambda raw: placement(raw, "seq").update(sharding_type="table_row_wise"),
        "table_row_wise does not run sequence tables",
    ),
    (
        "an unknown table",
        lambda raw: placement(raw, "tw").update(table="twx"),
        "table 'twx' is placed but not in the workload; did you mean 'tw'?",
    ),
    (
        "a table placed twice",
        lambda raw: raw["placements"].append(placement(raw, "tw")),
        "table 'tw' is placed twice; place it once",
    ),
    (
        "a table missing",
        lambda raw: raw["placements"].remove(placement(raw, "tw")),
        "1 table without a place, the first is 'tw'; place every table",
    ),
    (
        "an unknown sharding type",
        lambda raw: placement(raw, "rw").update(sharding_type="rowwise"),
        "table 'rw' has sharding_type 'rowwise'; did you mean 'row_wise'?",
    ),
    (
        "a kernel that the type does not run",
        lambda raw: placement(raw, "dp").update(compute_kernel="fused"),
        "table 'dp' (data_parallel) has compute_kernel 'fused'; data_parallel runs dense",
    ),
    (
        "another kernel that the type does not run",
        lambda raw: placement(raw, "rw").update(compute_kernel="dense"),
        "row_wise runs fused, fused_uvm, fused_uvm_caching",
    ),
    (
        "a cache without a cached kernel",
        lambda raw: placement(raw, "rw").update(cache={"load_factor": 0.5}),
        "table 'rw' has cache parameters but kernel fused has no cache",
    ),
]


@pytest.mark.parametrize(("edit", "words"), [pytest.param(edit, words, id=name) for name, edit, words in MISMATCHES])
@pytest.mark.parametrize("with_digest", [True, False])
def test_an_edit_that_does_not_hold_together_is_refused(raw: dict[str, Any], edit: Edit, words: str, with_digest: bool):
    if not with_digest:
        del raw["digest"]
    edit(raw)
    with pytest.raises(PlanMismatch) as caught:
        plan_from_raw(raw, "plan.json")
    assert str(caught.value).startswith("'plan.json': ")
    assert words in str(caught.value)


def test_tables_of_a_sequence_collection_must_share_one_width():
    work = workload(table("s", pooling="none"), table("t", pooling="none"))
    raw = plan_to_raw(plan_of(work, cluster(), placed("s", "column_wise", [0]), placed("t", "column_wise", [1])))
    raw["placements"][0] |= {"ranks": [0, 1], "widths": [16, 16]}
    with pytest.raises(
        PlanMismatch, match="'s' and 't' of the collection without a name are column_wise with widths 16 and 32"
    ):
        plan_from_raw(raw, "p")


UNTOUCHED: list[tuple[str, Edit]] = [
    ("another batch size", lambda raw: raw["workload"].update(batch_size=17)),
    ("another pooling factor", lambda raw: raw["workload"]["tables"][0].update(pooling_factor=2)),
    ("another reserve", lambda raw: raw["cluster"].update(reserve_bytes=1)),
    ("other constraints", lambda raw: raw["constraints"].update(widths="torchrec")),
    ("another kernel", lambda raw: placement(raw, "cw").update(compute_kernel="fused_uvm")),
    ("another cache", lambda raw: placement(raw, "tw")["cache"].update(load_factor=0.5)),
    ("placements in another order", lambda raw: (raw["placements"].reverse(), raw.pop("shards"))),
    ("a moved table", lambda raw: (placement(raw, "tw").update(ranks=[2]), shards(raw, "tw")[0].update(rank=2))),
    ("another digest", lambda raw: raw.update(digest="0" * 64)),
]


@pytest.mark.parametrize("edit", [pytest.param(edit, id=name) for name, edit in UNTOUCHED])
def test_a_file_that_was_changed_is_refused_by_its_digest(raw: dict[str, Any], edit: Edit):
    edit(raw)
    with pytest.raises(CorruptFile, match="'p' was changed after it was written; plan again, or delete `digest`"):
        plan_from_raw(raw, "p")


CORRUPT: list[tuple[str, Edit, str]] = [
    ("no placements", lambda raw: raw.pop("placements"), "is a plan without `placements`"),
    ("no workload", lambda raw: raw.pop("workload"), "is a plan without `workload`"),
    ("no cost", lambda raw: raw.pop("cost"), "is a plan without a price: `cost` is missing"),
    ("no planner", lambda raw: raw.pop("planner"), "`planner` is missing"),
    ("no gap", lambda raw: raw.pop("gap"), "`gap` is missing"),
    ("another schema", lambda raw: raw.update(schema="recsmith/plan/2"), "expected `recsmith/plan/1`"),
    (
        "an unknown field",
        lambda raw: raw.update(placement=[]),
        "placement is not a known field; did you mean 'placements'",
    ),
    ("an unknown field of a placement", lambda raw: placement(raw, "tw").update(rank=1), "did you mean 'ranks'"),
    ("an unknown field of a shard", lambda raw: raw["shards"][0].update(row=[0, 1]), "did you mean 'rows'"),
    ("half a range", lambda raw: raw["shards"][0].update(rows=[0]), "shards[0] ('cw').rows[1] is missing"),
    ("ranks as text", lambda raw: placement(raw, "tw").update(ranks=["1"]), "placements[6] ('tw').ranks[0] is \"1\""),
    ("ranks as a number", lambda raw: placement(raw, "tw").update(ranks=1), ".ranks is 1"),
    ("a rank that is no whole number", lambda raw: placement(raw, "tw").update(ranks=[0.5]), ".ranks[0] is 0.5"),
    (
        "a cache of more than all rows",
        lambda raw: placement(raw, "tw")["cache"].update(load_factor=1.5),
        "load_factor is 1.5",
    ),
    ("a cache of no rows", lambda raw: placement(raw, "tw")["cache"].update(load_factor=0), "load_factor is 0.0"),
    (
        "a workload that is a name",
        lambda raw: raw.update(workload="dlrm-v2"),
        "holds no object where one of `schema: recsmith/workload",
    ),
    (
        "a cluster that is a list",
        lambda raw: raw.update(cluster=[]),
        "holds no object where one of `schema: recsmith/cluster",
    ),
    ("a cluster that is null", lambda raw: raw.update(cluster=None), "holds no object"),
    (
        "a workload with a bad table",
        lambda raw: raw["workload"]["tables"][0].update(embedding_dim=0),
        "embedding_dim of table 'cw' is 0",
    ),
    ("constraints that are a list", lambda raw: raw.update(constraints=[]), "constraints is []"),
    ("a cost as text", lambda raw: raw["cost"].update(total_s="1"), 'cost.total_s is "1"'),
    ("a digest that is a number", lambda raw: raw.update(digest=1), "digest is 1"),
    ("shards that are an object", lambda raw: raw.update(shards={}), "shards is {}"),
]


@pytest.mark.parametrize(("edit", "words"), [pytest.param(edit, words, id=name) for name, edit, words in CORRUPT])
def test_a_file_that_is_no_plan_is_refused_with_its_place(raw: dict[str, Any], edit: Edit, words: str):
    edit(raw)
    with pytest.raises(CorruptFile) as caught:
        plan_from_raw(raw, "plan.json")
    assert str(caught.value).startswith("'plan.json'")
    assert words in str(caught.value)


def test_a_cut_off_file_is_refused(made: Plan, tmp_path: Path):
    text = dump_json(plan_to_raw(made))
    (tmp_path / "plan.json").write_text(text[: len(text) // 2])
    with pytest.raises(CorruptFile, match="is not JSON"):
        load_plan(str(tmp_path / "plan.json"))


def test_a_missing_file_is_a_usage_error():
    with pytest.raises(UsageError, match="cannot read 'nowhere"):
        load_plan("nowhere.json")


# --- runs of ranks --------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 40), max_size=30))
def test_runs_say_ranks_in_their_order(ranks: list[int]):
    assert (list(ranks_from(runs_of(ranks))) if ranks else []) == ranks
    assert not ranks or re.fullmatch(RUNS, runs_of(ranks))


@pytest.mark.parametrize("text", ["", "3-1", "0-9999999999", "a", "1,,2", "-1", "1-", "0-3;4", "\u0663"])
def test_other_texts_of_ranks_are_refused(raw: dict[str, Any], text: str):
    raw["placements"][0]["ranks"] = text
    with pytest.raises(CorruptFile, match=r"ranks of table 'cw' are '.*'; write a list of ranks, or runs of them"):
        plan_from_raw(raw, "plan.json")


def test_runs_written_by_hand_are_read_in_any_plan(made: Plan, raw: dict[str, Any]):
    raw["placements"][1]["ranks"] = "0-1, 2-3"
    assert plan_from_raw(raw, "plan.json") == made


def _longer(raw: dict[str, Any]) -> None:
    raw["cost"]["total_s"] *= 2


PRICES: list[tuple[str, Edit, str]] = [
    ("a longer step", _longer, "parts and wait of rank 0 add up to"),
    ("a shorter part", lambda raw: raw["cost"]["per_device"][1].update(backward_compute_s=0), "wait of rank 1 add up"),
    ("another rank", lambda raw: raw["cost"]["per_device"][1].update(rank=0), "the cost of rank 1 is of rank 0"),
    ("another gap", lambda raw: raw.update(gap=raw["gap"] + 1e-3), "not step / bound - 1"),
    ("another bound", lambda raw: raw["bound"].update(value_s=raw["bound"]["value_s"] / 2), "not step / bound - 1"),
    ("no bound", lambda raw: raw["bound"].update(value_s=None), "and nothing bounds it"),
]


@pytest.fixture(scope="module")
def searched() -> str:
    return dump_json(plan_to_raw(plan(workload(table("a"), table("b", 10**5)), cluster(), planner="size_greedy").plan))


@pytest.mark.parametrize(("edit", "words"), [pytest.param(edit, words, id=name) for name, edit, words in PRICES])
@pytest.mark.parametrize("with_digest", [True, False])
def test_figures_of_a_price_that_do_not_go_together_are_refused(
    searched: str, edit: Edit, words: str, with_digest: bool
):
    raw = json.loads(searched)
    plan_from_raw(json.loads(searched), "p")
    edit(raw)
    if not with_digest:
        del raw["digest"]
    with pytest.raises(CorruptFile, match=f"'p' was changed after it was written: .*{words}.*delete `cost`"):
        plan_from_raw(raw, "p")
