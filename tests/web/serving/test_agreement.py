"""Page, report and terminal say the same of random plans: the slowest device, notes, gap, and what the bound is for."""

import random

import pytest
from support.printed import text_of
from support.served import Client

import recsmith
from recsmith.files import dump_json
from recsmith.plans import plan_to_raw
from recsmith.problems.space import space_words
from recsmith.reports.plans import plan_report
from recsmith.web.report_data import report_data

SEEDS = [seed if seed < 10 else pytest.param(seed, marks=pytest.mark.soak) for seed in range(40)]


@pytest.mark.parametrize("seed", SEEDS)
def test_page_report_and_terminal_agree(seed: int, client: Client, capsys: pytest.CaptureFixture[str]):
    drawn = random.Random(seed)
    tables = recsmith.sample_workload(drawn.randint(3, 12), seed, max_bytes=2**31)
    kinds = drawn.sample(["table_wise", "column_wise", "row_wise", "data_parallel"], 2)
    made = recsmith.plan(
        tables, drawn.choice(["h100:2", "a100-40:4", "h100:2x2"]), planner=drawn.choice(["random", "size_greedy"]),
        seed=seed, space=recsmith.Space(types=tuple({*kinds, "row_wise"})),
        cost_model=drawn.choice(["analytic", "torchrec"]),
    ).plan  # fmt: skip
    opened = client.upload(dump_json(plan_to_raw(made)), "plan.json").json()["plan"]
    page = client.ask("GET", f"/api/plans/{opened['id']}").json()
    report = report_data(made, "plan.json")
    assert tuple(page["notes"]) == report.plan.notes
    assert page["summary"]["gap"] == report.plan.gap == made.gap
    longest = max(report.phases, key=lambda phase: phase.seconds)
    slowest = page["slowest"]
    assert slowest["rank"] == longest.rank
    assert slowest["part"] == max(longest.parts, key=lambda part: part.seconds).part
    recsmith_says = " ".join(printed(made, capsys).split())
    assert f"rank {slowest['rank']}, mostly {slowest['part'].removesuffix('_s').replace('_', ' ')}" in recsmith_says
    assert page["valid_for"] == space_words(made.bound.space)
    assert all(note.rstrip(".")[1:] in recsmith_says for note in report.plan.notes)
    priced = client.ask("POST", f"/api/plans/{opened['id']}/price", json={"moves": []}).json()
    assert priced["slowest"] == slowest


def printed(made: recsmith.Plan, capsys: pytest.CaptureFixture[str]) -> str:
    return text_of(plan_report(made), capsys)
