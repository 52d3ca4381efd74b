"""Plans in the API: looked at, moved by hand and priced as `recsmith.price` does, compared, downloaded."""

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter
from support.served import Client, client_of

import recsmith
from recsmith.planning.simulate import price_plan
from recsmith.plans import StepCost, plan_to_raw
from recsmith.plans.files import plan_from_raw
from recsmith.problems import Pin


def price(client: Client, key: str, **edit: Any) -> Any:
    answer = client.ask("POST", f"/api/plans/{key}/price", json=edit)
    assert answer.status_code == 200, answer.text
    return answer.json()


def movable(plan: recsmith.Plan) -> recsmith.Placement:
    return next(each for each in plan.placements if each.sharding_type == "table_wise")


def test_a_move_costs_what_the_moved_plan_costs(client: Client, opened: str, plan: recsmith.Plan):
    asked = 0
    for placement in plan.placements:
        if len(placement.ranks) != 1:
            continue
        asked, rank = asked + 1, (placement.ranks[0] + 1 + asked % 3) % 4
        moved = tuple(replace(each, ranks=(rank,)) if each == placement else each for each in plan.placements)
        found = price(client, opened, moves=[{"table": placement.table, "rank": rank}])
        assert found["cost"] == TypeAdapter(StepCost).dump_python(
            price_plan(replace(plan, placements=moved)), mode="json"
        )
        assert found["bound_s"] == plan.bound.value_s
    assert asked > 10


def test_column_pieces_and_whole_hosts_move(client: Client, plan: recsmith.Plan):
    tables = plan.workload.tables[:2]
    wide = [
        recsmith.Placement(table=tables[0].name, sharding_type="column_wise", compute_kernel="fused", ranks=(0, 1),
                           widths=(tables[0].embedding_dim // 2,) * 2),
        recsmith.Placement(table=tables[1].name, sharding_type="table_row_wise", compute_kernel="fused", ranks=(0, 1)),
    ]  # fmt: skip
    workload = replace(plan.workload, tables=tables)
    priced = recsmith.price(workload, plan.cluster, wide)
    key = client.upload(json.dumps(plan_to_raw(priced))).json()["plan"]["id"]
    moves = [{"table": tables[0].name, "piece": 1, "rank": 3}, {"table": tables[1].name, "rank": 3}]
    found = {each["table"]: each["ranks"] for each in price(client, key, moves=moves)["placements"]}
    assert found == {tables[0].name: [0, 3], tables[1].name: [2, 3]}


@pytest.mark.parametrize(
    ("move", "words"),
    [
        ({"table": "nobody", "rank": 0}, "no table is called 'nobody'"),
        ({"table": "table_0000", "rank": 4}, "rank 4 is not one of the cluster's 0 .. 3"),
        ({"table": "table_0000", "rank": -1}, "rank -1"),
        ({"table": "table_0000", "piece": 7, "rank": 0}, "piece 7 is none"),
        ({"table": "table_0000"}, "rank is missing"),
        ({"table": "table_0000", "rank": "0"}, 'rank is "0"'),
    ],
)
def test_moves_that_cannot_be_run_are_refused(client: Client, opened: str, move: Any, words: str):
    answer = client.ask("POST", f"/api/plans/{opened}/price", json={"moves": [move]})
    assert answer.status_code in (400, 422)
    assert words in answer.json()["error"]


def test_too_little_memory_and_other_figures_are_told(client: Client, opened: str, plan: recsmith.Plan):
    same = price(client, opened)
    assert (same["cost"]["total_s"], same["broken"]) == (plan.cost.total_s, [])
    slower = price(client, opened, changes={"intra_host_bandwidth": 1e9, "inter_host_bandwidth": 1e9})
    assert slower["cost"]["total_s"] > plan.cost.total_s
    most = max(device.hbm_bytes for device in plan.cost.per_device)
    assert plan.cluster.reserve_bytes
    full = price(client, opened, changes={"hbm_bytes": plan.cluster.reserve_bytes + most - 1})
    assert full["gap"] is None
    assert full["overfull"]
    assert "more memory than there is" in full["broken"][0]
    answer = client.ask("POST", f"/api/plans/{opened}/price", json={"changes": {"hosts": 4}})
    assert answer.status_code == 400
    assert "plan again" in answer.json()["error"]


def test_pinned_pieces_that_change_places_break_the_pin(client: Client, plan: recsmith.Plan):
    """Two equal pieces of a pinned table, swapped by hand: other columns on both ranks."""
    table = plan.workload.tables[0]
    pin = Pin(sharding_type="column_wise", ranks=(1, 0), widths=(table.embedding_dim // 2,) * 2)
    limits = recsmith.Constraints(rules=(recsmith.TableRule(tables=table.name, pin=pin),))
    pinned = recsmith.plan(plan.workload, plan.cluster, planner="size_greedy", constraints=limits).plan
    key = client.upload(json.dumps(plan_to_raw(pinned))).json()["plan"]["id"]
    assert price(client, key)["broken"] == []
    swapped = price(client, key, moves=[{"table": table.name, "piece": i, "rank": i} for i in range(2)])
    assert swapped["gap"] is None
    assert f"table '{table.name}' is column_wise (fused) on ranks [0, 1]" in swapped["broken"][0]
    assert "pinned to column_wise (fused) on ranks [1, 0]" in swapped["broken"][0]


def test_every_changed_table_is_counted_however_few_are_listed(
    client: Client, opened: str, plan: recsmith.Plan, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("recsmith.web.serving.views.MOST_CHANGES", 0)
    placement = movable(plan)
    edit = {"moves": [{"table": placement.table, "rank": (placement.ranks[0] + 1) % 4}]}
    key = client.ask("POST", f"/api/plans/{opened}/edits", json=edit).json()["id"]
    found = client.ask("GET", "/api/comparison", params={"plan": [opened, key]}).json()["differences"][0]
    assert (found["changed"], found["changes"]) == (1, [])


def test_what_moves_most_is_listed_first(
    client: Client, opened: str, plan: recsmith.Plan, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("recsmith.web.serving.views.MOST_CHANGES", 1)
    size = {each.name: each.num_embeddings * each.embedding_dim for each in plan.workload.tables}
    whole = [each for each in plan.placements if each.sharding_type == "table_wise"]
    largest = max(whole, key=lambda each: size[each.table])
    first = next(each for each in whole if each.table < largest.table and size[each.table] < size[largest.table])
    moves = [{"table": each.table, "rank": (each.ranks[0] + 1) % 4} for each in (first, largest)]
    key = client.ask("POST", f"/api/plans/{opened}/edits", json={"moves": moves}).json()["id"]
    found = client.ask("GET", "/api/comparison", params={"plan": [opened, key]}).json()["differences"][0]
    assert [each["table"] for each in found["changes"]] == [largest.table]


def test_a_changed_plan_is_kept_compared_and_downloaded(client: Client, opened: str, plan: recsmith.Plan):
    placement = movable(plan)
    to = (placement.ranks[0] + 1) % 4
    edit = {"moves": [{"table": placement.table, "rank": to}], "name": "<img src=x onerror=alert(1)>"}
    made = client.ask("POST", f"/api/plans/{opened}/edits", json=edit)
    assert made.status_code == 201
    key = made.json()["id"]
    file = client.ask("GET", f"/api/plans/{key}/file")
    assert file.headers["content-disposition"].startswith('attachment; filename="img-src-x-onerror-alert-1.json"')
    found = plan_from_raw(json.loads(file.text), "download")
    assert next(each for each in found.placements if each.table == placement.table).ranks == (to,)
    both = client.ask("GET", "/api/comparison", params={"plan": [opened, key]}).json()
    assert [each["table"] for each in both["differences"][0]["changes"]] == [placement.table]
    assert both["differences"][0]["changed"] == 1
    report = client.ask("GET", f"/api/plans/{key}/report", params={"against": opened})
    assert report.headers["content-type"].startswith("text/html")
    assert "attachment" in report.headers["content-disposition"]
    assert "<img src=x" not in report.text


def test_what_is_not_there_is_not_found(client: Client, opened: str):
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/price"), ("GET", "/file"), ("GET", "/report")):
        answer = client.ask(method, f"/api/plans/plan-0{path}", **({"json": {}} if method == "POST" else {}))
        assert answer.status_code == 404
        assert "no plan 'plan-0' is kept here" in answer.json()["error"]
    assert client.ask("DELETE", f"/api/plans/{opened}").status_code == 204
    assert client.ask("GET", f"/api/plans/{opened}").status_code == 404
    assert client.ask("PUT", "/api/kept").status_code == 405
    assert client.ask("GET", "/api/nothing").json() == {"error": "there is nothing at this address"}


def test_a_session_keeps_the_latest_plans(plan_text: str):
    client = client_of(kept_plans=2)
    keys = [client.upload(plan_text).json()["plan"]["id"] for _ in range(3)]
    assert [each["id"] for each in client.ask("GET", "/api/kept").json()["plans"]] == keys[1:]
