"""Steps by formulas: any plan, any cluster whose devices' figures are known, attention by the square of a history."""

from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner
from prediction.test_models import a_plan

import recsmith
from recsmith.cli.app import app
from recsmith.clusters import load_cluster
from recsmith.errors import UsageError
from recsmith.plans import Plan, save_plan
from recsmith.prediction.formulas import MATRIX_FLOPS, formula_graph, history_parts
from recsmith.prediction.histories import HistoryWork
from recsmith.prediction.models import Model, load_model
from recsmith.prediction.predictions import predict_model
from recsmith.prediction.what_if import parse_what_ifs


def plan_of(workload: str, cluster: str, **words: Any) -> Plan:
    return recsmith.plan(workload, cluster, planner="size_greedy", **words).plan


@pytest.fixture(scope="module")
def v4() -> Plan:
    return plan_of("dlrm-v4", "mi355x:8x4")


def test_the_whole_step_of_dlrm_v4_is_its_tables_and_its_layers(v4: Plan) -> None:
    [(batch, found)] = predict_model("dlrm-v4", plan=v4)
    assert batch == 1024
    assert sum(found.terms.values()) == pytest.approx(found.step_s)
    assert found.step_s > v4.cost.step_s
    assert {"attention", "products", "gates and norms", "jagged copies", "all_to_all"} <= set(found.terms)
    assert len(found.ranks) == 32
    assert "nothing was measured on mi355x" in found.notes[0]
    slower = predict_model("dlrm-v4", plan=v4, what_ifs=parse_what_ifs("link=0.5x"))[0][1]
    assert slower.step_s - found.step_s == pytest.approx(found.terms["all_to_all"])


def test_attention_grows_by_the_square_of_a_history_and_products_by_its_length(v4: Plan) -> None:
    model = replace(load_model("dlrm-v4"), top=())
    terms = [
        predict_model(replace(model, history=events), plan=v4)[0][1].terms for events in (1000, 2000)
    ]  # fmt: skip
    assert terms[1]["attention"] == pytest.approx(4 * terms[0]["attention"])
    assert terms[1]["products"] == pytest.approx(2 * terms[0]["products"], rel=1e-3)


def test_a_default_plan_of_dlrm_v2_is_predicted_whatever_its_sharding_types() -> None:
    plan = recsmith.plan("dlrm-v2", "h100:8", iterations=1).plan
    found = predict_model("dlrm-v2", plan=plan)[0][1]
    assert {each.sharding_type for each in plan.placements} - {"table_wise", "column_wise"}
    assert found.terms["embedding_forward"] == pytest.approx(
        max(each.forward_compute_s for each in plan.cost.per_device), rel=0.5
    )
    assert plan.cost.step_s < found.step_s < 10 * plan.cost.step_s


def test_on_a_cpu_a_sum_stands_in_for_templates() -> None:
    graph, told = formula_graph(Model(kind="dlrm"), a_plan(types=("row_wise",)), 32, "analytic")
    assert "templates know tables that are whole or cut by columns" in told
    assert [event.term for event in graph.ranks[0]].count("layers") == 2
    assert graph.batch_size == 32


def test_a_device_without_figures_is_refused_and_a_model_may_say_them(v4: Plan) -> None:
    unknown = replace(v4, cluster=replace(v4.cluster, device=replace(v4.cluster.device, name="own")))
    with pytest.raises(UsageError, match=r"matrix units of device 'own' are .* give the model's file matrix_flops"):
        formula_graph(load_model("dlrm-v4"), unknown, None)
    told = replace(load_model("dlrm-v4"), matrix_flops=MATRIX_FLOPS["mi355x"])
    assert formula_graph(told, unknown, None)[0].ranks == formula_graph(load_model("dlrm-v4"), v4, None)[0].ranks


@pytest.mark.parametrize(
    ("name", "samples", "positions", "pairs", "blocks", "whole", "measured", "low", "high"),
    [
        ("h100", 32, 99e3 / 32, 1024**2 + 4096 * 1024, 5, False, 9.30e-3, 0.95, 1.05),  # that the shares are of
        ("mi350x", 1024, 2.727e6 / 1024, (2.727e6 / 1024) ** 2, 1, True, 160.31e-3, 0.5, 1.0),
    ],
)
def test_formulas_are_within_a_factor_of_two_of_what_was_published(
    name: str, samples: int, positions: float, pairs: float, blocks: int, whole: bool, measured: float,
    low: float, high: float,
) -> None:  # fmt: skip
    products = ((positions, 2048, 512), (positions, 512, 512)) * blocks
    work = HistoryWork(
        products=products, blocks=blocks, heads=4, keys=128, values=128, positions=positions, pairs=pairs, width=512
    )
    parts = history_parts(work, samples, MATRIX_FLOPS[name], load_cluster(f"{name}:8").device)
    found = sum(part.forward_s + whole * part.backward_s for part in parts if part.term != "jagged copies")
    assert low < found / measured < high


def test_the_command_tells_a_step_of_a_cluster(tmp_path: object, v4: Plan) -> None:
    save_plan(v4, f"{tmp_path}/plan.json")
    found = CliRunner().invoke(app, ["predict", "dlrm-v4", "--plan", f"{tmp_path}/plan.json"])
    assert found.exit_code == 0, found.output
    assert "attention" in found.output
    assert "within a factor of two" in " ".join(found.output.split())
