"""Plans for a predicted step are never worse by prediction than the default's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from support.machines import a_card, a_model
from support.synthetic_traces import write_capture

import recsmith
from recsmith.cli.app import app
from recsmith.costs import cost_model
from recsmith.errors import UsageError
from recsmith.plans import Plan
from recsmith.prediction.kernels import LEARNED
from recsmith.prediction.machine import save_machine
from recsmith.prediction.step_objective import WEIGHTS, WeighedModel, plan_for_step
from recsmith.problems import build_problem

TABLES = """
schema: recsmith/workload/1
batch_size: 512
optimizer: sgd
tables:
  - {name: a, num_embeddings: 20000, embedding_dim: 32, pooling_factor: 60}
  - {name: b, num_embeddings: 40000, embedding_dim: 32, pooling_factor: 1}
  - {name: c, num_embeddings: 1000, embedding_dim: 32, pooling_factor: 20}
"""


def a_workload(widths: tuple[int, ...], pooling: tuple[float, ...]) -> recsmith.Workload:
    tables = tuple(
        recsmith.Table(name=f"t{i}", num_embeddings=100_000, embedding_dim=width,
                       features=(recsmith.Feature(name=f"f{i}", pooling_factor=reads),))
        for i, (width, reads) in enumerate(zip(widths, pooling, strict=True))
    )  # fmt: skip
    return recsmith.Workload(batch_size=4096, optimizer="sgd", tables=tables)


WIDE_OR_BUSY = a_workload((256, 256, 32, 32), (1, 1, 60, 60))
WORDS: dict[str, Any] = {"workload": WIDE_OR_BUSY, "cluster": "h100:2", "planner": "ldm",
                         "space": recsmith.Space(types=("table_wise",), kernels=("fused",))}  # fmt: skip


def test_the_plan_with_the_shortest_step_is_taken_and_priced_by_the_model_itself():
    asked: list[Plan] = []

    def predicted(plan: Plan) -> float:
        asked.append(plan)
        return [4.0, 2.0, 3.0, 2.0][len(asked) - 1]

    found = plan_for_step(predicted, **WORDS)
    assert [weight for weight, _ in found.steps] == list(WEIGHTS)
    assert found.step_s == 2.0
    assert found.result.plan.placements == asked[1].placements
    assert found.result.plan.cost_model == "best"
    assert asked[0].placements == recsmith.plan(**WORDS).plan.placements
    assert found.result.plan.cost == recsmith.simulate(found.result.plan, "best").cost


def test_weights_scale_collectives_alone():
    problem = build_problem(WIDE_OR_BUSY, recsmith.load_cluster("h100:2"), WORDS["space"])
    plain, weighed = cost_model().compile(problem), WeighedModel(cost_model(), 0.25).compile(problem)
    sums = plain.terms(np.arange(2), np.array([32, 64]))
    assert weighed.head(sums) == pytest.approx(plain.head(sums) * np.array([1, 1, 0.25, 0.25]))
    assert weighed.loads(sums) == pytest.approx(plain.step_rule.phase_seconds(weighed.head(sums)))
    assert weighed.shared == pytest.approx(plain.shared * np.array([1, 1, 0.25, 0.25]))
    assert weighed.compute(sums) == pytest.approx(plain.compute(sums))


def test_hidden_communication_counts_for_nothing():
    """With a step of compute alone, lookups are what must be even; the default evens out lookups and wide outputs."""

    def compute_alone(plan: Plan) -> float:
        return max(each.forward_compute_s + each.backward_compute_s for each in plan.cost.per_device)

    found = plan_for_step(compute_alone, **WORDS)
    assert found.step_s <= found.steps[0][1]
    assert found.step_s == min(seconds for _, seconds in found.steps)


def test_the_command_plans_for_a_described_step(tmp_path: Path):
    (tmp_path / "tables.yaml").write_text(TABLES)
    (tmp_path / "model.yaml").write_text("schema: recsmith/model/1\nkind: dlrm\n")
    save_machine(str(tmp_path / "here.safetensors"), {kind: a_model(kind) for kind in LEARNED}, a_card())
    words = ["plan", str(tmp_path / "tables.yaml"), "--cluster", "cpu:2", "--planner", "ldm"]
    step = ["--objective", "step_time", "--step", str(tmp_path / "model.yaml")]
    done = CliRunner().invoke(app, [*words, *step, "--machine", str(tmp_path / "here.safetensors")])
    assert done.exit_code == 0, done.output
    assert "the step is predicted at" in done.output
    for more, said in (
        (["--objective", "step_time"], "needs --step MODEL"),
        (["--step", "model.yaml"], "are of --objective step_time"),
        ([*step, "--prove"], "not a predicted step"),
        (["--objective", "step_time", "--step", str(write_capture(tmp_path / "trace", [0.0, 0.0]))], "0 lookups"),
    ):
        with pytest.raises(UsageError, match=said):
            raise CliRunner().invoke(app, [*words, *more]).exception or AssertionError("nothing was refused")
