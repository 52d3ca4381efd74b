"""A step on another cluster: what moves memory and what crosses links goes by figures, all else stays."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.dlrm_plans import DLRM, a_plan
from support.machines import a_machine

from recsmith.cli.app import app
from recsmith.clusters import Cluster, load_cluster
from recsmith.errors import UsageError
from recsmith.plans import save_plan
from recsmith.prediction.graph import Collective, Graph, Kind
from recsmith.prediction.models.build import model_graph
from recsmith.prediction.other_cluster import on_cluster
from recsmith.prediction.predict import no_latency, predict_graph

PLAN = a_plan((0, 1, 0, 1, 0))


def step() -> Graph:
    return model_graph(DLRM, a_machine(), plan=PLAN, ranks=2, batch=64)


def faster(memory: float, links: float) -> Cluster:
    old = PLAN.cluster
    device = replace(old.device, hbm_bandwidth=old.device.hbm_bandwidth * memory)
    made = replace(old.links, intra_host_bandwidth=old.links.intra_host_bandwidth * links)
    return replace(old, device=device, links=made)


def seconds(graph: Graph, *, products: bool) -> float:
    kernels = [event for _, event in graph.kernels() if (event.term == "gemm") == products]
    return sum(event.seconds for event in kernels if event.kind == Kind.RUN)


def test_memory_and_links_go_by_their_figures_and_nothing_else_changes() -> None:
    old = step()
    new, said = on_cluster(old, PLAN.cluster, faster(2.0, 4.0), no_latency)
    assert seconds(new, products=False) == pytest.approx(seconds(old, products=False) / 2)
    assert seconds(new, products=True) == seconds(old, products=True) > 0
    for mine, before in zip(new.collectives, old.collectives, strict=True):
        assert mine.seconds == pytest.approx(before.seconds / 4)
    assert "memory 2 times as fast" in said
    assert "4 times" in said
    assert predict_graph(new).step_s < predict_graph(old).step_s


def test_the_same_cluster_changes_nothing_and_latency_stays() -> None:
    old = step()
    same, _ = on_cluster(old, PLAN.cluster, PLAN.cluster, no_latency)
    assert predict_graph(same).step_s == pytest.approx(predict_graph(old).step_s)

    def all_of_it(made: Collective) -> float:
        return made.seconds

    fixed, _ = on_cluster(old, PLAN.cluster, faster(1.0, 4.0), all_of_it)
    assert [each.seconds for each in fixed.collectives] == [each.seconds for each in old.collectives]


@pytest.mark.parametrize(("cluster", "said"), [("cpu:4", "2 ranks"), ("h100:2", "of one kind")])
def test_what_cannot_be_carried_over_gets_one_sentence(cluster: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        on_cluster(step(), PLAN.cluster, load_cluster(cluster), no_latency)


def test_the_command_asks_for_the_plan_and_says_what_it_did(tmp_path: Path) -> None:
    model, plan = (str(tmp_path / name) for name in ("dlrm.yaml", "plan.json"))
    Path(model).write_text("schema: recsmith/model/1\nkind: dlrm\n")
    save_plan(PLAN, plan)
    shown = CliRunner().invoke(app, ["predict", model, "--cluster", "cpu:2"])
    assert "add --plan" in str(shown.exception)
    shown = CliRunner().invoke(app, ["predict", model, "--plan", plan, "--cluster", "cpu:2"])
    assert shown.exit_code == 0, shown.exception
    assert "carried over to cpu" in " ".join(shown.output.split())
