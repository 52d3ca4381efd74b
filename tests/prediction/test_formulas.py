"""Steps by formulas: any plan, any cluster whose devices' figures are known, attention by the square of a history."""

from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner
from prediction.test_models import a_plan

import recsmith
from recsmith.cli.app import app
from recsmith.clusters import Cluster, load_cluster
from recsmith.costs.sequence_rows import sequence_seconds
from recsmith.errors import UsageError
from recsmith.plans import Plan, save_plan
from recsmith.prediction.formulas import LAUNCHES_S, MATRIX_FLOPS, formula_graph, history_parts
from recsmith.prediction.histories import HistoryWork
from recsmith.prediction.models import Model, load_model
from recsmith.prediction.predictions import predict_model
from recsmith.prediction.what_if import parse_what_ifs
from recsmith.units import format_time
from recsmith.workloads import Workload, load_workload


def plan_of(workload: str | Workload, cluster: str | Cluster, **words: Any) -> Plan:
    return recsmith.plan(workload, cluster, planner="size_greedy", **words).plan


@pytest.fixture(scope="module")
def v4() -> Plan:
    return plan_of("dlrm-v4", "mi355x:8x4")


def test_the_whole_step_of_dlrm_v4_is_its_tables_and_its_layers(v4: Plan) -> None:
    [(batch, found)] = predict_model("dlrm-v4", plan=v4)
    assert batch == 1024
    assert sum(found.terms.values()) == pytest.approx(found.step_s)
    assert found.step_s > v4.cost.step_s
    assert {"attention", "products", "gates and norms", "around layers", "all_to_all"} <= set(found.terms)
    assert len(found.ranks) == 32
    assert "none of these is of mi355x" in found.notes[0]
    slower = predict_model("dlrm-v4", plan=v4, what_ifs=parse_what_ifs("link=0.5x"))[0][1]
    assert slower.step_s - found.step_s == pytest.approx(found.terms["all_to_all"])


def test_on_another_cluster_a_step_is_what_formulas_say_of_it_there(v4: Plan) -> None:
    there = plan_of("dlrm-v4", "h200:8x4")
    [(_, carried)] = predict_model("dlrm-v4", plan=v4, cluster="h200:8x4")
    [(_, found)] = predict_model("dlrm-v4", plan=replace(v4, cluster=there.cluster, digest=""))
    assert carried.terms == found.terms
    assert "bytes of h200" in carried.notes[0]
    with pytest.raises(UsageError, match="32 ranks, the plan's cluster 32 and --cluster 8"):
        predict_model("dlrm-v4", plan=v4, cluster="h200:8")


def test_a_model_that_reads_tables_otherwise_than_they_are_is_refused(v4: Plan) -> None:
    with pytest.raises(UsageError, match=r"table 'album_id' gives each row of a history .* kind dlrm_dcn reads pooled"):
        predict_model("dlrm-v2", plan=v4)
    with pytest.raises(UsageError, match="reads each row of a history, and all tables of the plan are pooled"):
        predict_model("dlrm-v4", plan=plan_of("criteo-kaggle", "h100:2"))


def test_what_ifs_name_the_kernels_of_formulas(v4: Plan) -> None:
    [(_, found)] = predict_model("dlrm-v4", plan=v4)
    [(_, faster)] = predict_model("dlrm-v4", plan=v4, what_ifs=parse_what_ifs("kernel:attention=0.5x"))
    assert found.step_s - faster.step_s == pytest.approx(found.terms["attention"] / 2)
    with pytest.raises(UsageError, match="'kernel:gemm' changes nothing of this step, which has around layers, att"):
        predict_model("dlrm-v4", plan=v4, what_ifs=parse_what_ifs("kernel:gemm=0.5x"))


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
    unknown, known = (
        replace(v4, cluster=replace(v4.cluster, device=replace(v4.cluster.device, name=name)))
        for name in ("own", "b200")
    )
    with pytest.raises(UsageError, match=r"matrix units of device 'own' are .* give the model's file matrix_flops"):
        formula_graph(load_model("dlrm-v4"), unknown, None)
    told = replace(load_model("dlrm-v4"), matrix_flops=MATRIX_FLOPS["b200"])
    assert formula_graph(told, unknown, None)[0].ranks == formula_graph(load_model("dlrm-v4"), known, None)[0].ranks


@pytest.mark.parametrize(
    ("name", "samples", "positions", "pairs", "blocks", "whole", "measured", "low", "high"),
    [
        ("h100", 32, 99e3 / 32, 1024**2 + 4096 * 1024, 5, False, 9.30e-3, 0.95, 1.05),  # that the shares are of
        ("mi350x", 1024, 2.727e6 / 1024, (2.727e6 / 1024) ** 2, 1, True, 160.31e-3, 0.75, 1.0),
    ],
)
def test_formulas_of_layers_are_within_a_quarter_of_what_was_published(
    name: str, samples: int, positions: float, pairs: float, blocks: int, whole: bool, measured: float,
    low: float, high: float,
) -> None:  # fmt: skip
    products = ((positions, 2048, 512), (positions, 512, 1536)) * blocks
    work = HistoryWork(
        products=products, blocks=blocks, heads=4, keys=128, values=128, positions=positions, pairs=pairs, width=512
    )
    parts = history_parts(work, samples, MATRIX_FLOPS[name], load_cluster(f"{name}:8").device)
    found = sum(part.forward_s + whole * part.backward_s for part in parts if part.term != "around layers")
    assert low < found / measured < high


@pytest.mark.parametrize(("cluster", "published"), [("mi350x:8", 741e-3), ("mi350x:8x4", 811e-3)])
def test_the_steps_of_the_runs_that_the_reference_publishes(cluster: str, published: float) -> None:
    plan = plan_of(replace(load_workload("dlrm-v4"), index_dedup="on"), cluster)
    [(_, found)] = predict_model("dlrm-v4", plan=plan)
    assert 0.85 < found.step_s / published < 1.15
    assert found.terms["rows of sequences"] == pytest.approx(sequence_seconds(plan.workload, plan.cluster))


def test_a_host_launches_kernels_more_slowly_than_devices_do_them_for_few_samples(v4: Plan) -> None:
    few, many = (found for _, found in predict_model("dlrm-v4", plan=v4, batches=(8, 1024)))
    assert few.step_s == pytest.approx(LAUNCHES_S * 3, rel=0.01)
    assert "launches" in few.terms
    assert "launches" not in many.terms


def test_a_plan_that_leaves_no_memory_for_its_layers_is_told_so(v4: Plan):
    tight = plan_of("dlrm-v4", load_cluster("h200:8").with_memory(reserve_bytes=0))
    [(_, none), (_, few)] = predict_model("dlrm-v4", plan=tight, batches=(1024, 256))
    assert (
        "by this estimate the job runs out of memory; plan it with --reserve 79.74GiB, or with fewer samples"
        in none.notes[-1]
    )
    assert all("out of memory" not in each.notes[-1] for each in (few, predict_model("dlrm-v4", plan=v4)[0][1]))
    deep = replace(load_model("dlrm-v4"), blocks=60)
    assert "out of memory" in predict_model(deep, plan=v4)[0][1].notes[-1]


def test_the_command_tells_a_step_of_a_cluster(tmp_path: object, v4: Plan) -> None:
    save_plan(v4, f"{tmp_path}/plan.json")
    found = CliRunner().invoke(app, ["predict", "dlrm-v4", "--plan", f"{tmp_path}/plan.json"])
    assert found.exit_code == 0, found.output
    assert "attention" in found.output
    assert "of formulas" in found.output
    assert "none of these is of mi355x" in " ".join(found.output.split())


def test_steps_of_several_batches_say_how_far_to_trust_them_and_what_they_were_without_changes(
    tmp_path: object, v4: Plan
) -> None:
    save_plan(v4, f"{tmp_path}/plan.json")
    words = ["predict", "dlrm-v4", "--plan", f"{tmp_path}/plan.json", "--batch", "512,1024"]
    [(_, found)] = predict_model("dlrm-v4", plan=v4)
    alone = CliRunner().invoke(app, words).output
    assert alone.count("of formulas") == 1
    assert "without changes" not in alone
    changed = CliRunner().invoke(app, [*words, "--what-if", "kernel=0"]).output
    assert "without changes" in changed
    assert format_time(found.step_s).split()[0] in changed
