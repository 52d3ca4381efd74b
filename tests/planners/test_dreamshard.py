"""Planner dreamshard: its word, which policy it takes, what it does with options, and what it refuses."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file
from support.cases import cluster, table, workload

from recsmith import plan
from recsmith.clusters import Cluster, load_cluster
from recsmith.costs import cost_model, step_seconds
from recsmith.errors import CorruptFile, NoPlanFound, UsageError
from recsmith.planners import Budget
from recsmith.planners.dreamshard import DreamShard
from recsmith.planning import find_planner
from recsmith.problems import Problem, Space, build_problem, fits
from recsmith.testing.problems import sample_problems

SHIPPED = DreamShard.kind.find("simulated-h100")


def problem_of_tables(count: int, *, local: int = 4, where: Cluster | None = None) -> Problem:
    tables = [table(f"t{i}", 1000 * (i % 7 + 1), 32 * (i % 4 + 1), float(i % 11 + 1)) for i in range(count)]
    space = Space(types=("table_wise", "column_wise"), kernels=("fused",))
    return build_problem(workload(*tables, batch_size=4096, optimizer="sgd"), where or cluster(local), space)


def test_a_word_carries_policy_samples_and_refinement() -> None:
    found = find_planner("dreamshard:mine.safetensors?samples=16&refine")
    assert isinstance(found, DreamShard)
    assert (found.policy, found.samples, found.refine) == ("mine.safetensors", 16, True)
    assert found.name == "dreamshard:mine.safetensors?samples=16&refine"
    assert find_planner("dreamshard") == DreamShard()


@pytest.mark.parametrize(
    "word",
    ["dreamshard?", "dreamshard:", "dreamshard?samples=0", "dreamshard?samples=x", "dreamshard?sample=3",
     "dreamshard?samples=100000", "dreamshard?refine=1", "dreamshard:?refine", "dreamshard?refine&",
     "dreamshard?samples=2&samples=3", "dreamshard?refine&refine", "dreamshard?samples=" + "9" * 5000],
)  # fmt: skip
def test_a_word_that_is_none_is_refused_with_the_words_there_are(word: str) -> None:
    with pytest.raises(UsageError, match=r"write dreamshard, dreamshard:<name or file>, dreamshard\?samples=16"):
        find_planner(word)


def test_more_work_is_never_worse() -> None:
    problem = problem_of_tables(40)
    evaluator = cost_model().compile(problem)
    words = ("dreamshard", "dreamshard?samples=8", "dreamshard?samples=8&refine")
    greedy, samples, refined = (find_planner(word).plan(problem, evaluator) for word in words)
    assert greedy.total_s >= samples.total_s >= refined.total_s
    assert samples.iterations == greedy.iterations + 8
    for found in (greedy, samples, refined):
        assert fits(problem, found.footprint)
        assert found.total_s == step_seconds(evaluator, found.footprint)


def test_without_splits_every_table_stays_whole_and_without_its_policy_it_places_longest_first() -> None:
    heavy = table("heavy", 10_000, 1024, 500.0)  # which the rules split
    work = workload(heavy, *(table(f"t{i}", 1000, 32, 2.0) for i in range(8)), batch_size=4096, optimizer="sgd")
    problem = build_problem(work, cluster(4), Space(types=("table_wise", "column_wise"), kernels=("fused",)))
    evaluator = cost_model().compile(problem)
    whole, greedy = (find_planner(f"dreamshard?{word}").plan(problem, evaluator) for word in ("whole", "longest_first"))
    assert len(whole.footprint.target) == 9
    assert len(greedy.footprint.target) > 9
    assert greedy.total_s < 0.6 * whole.total_s
    assert fits(problem, greedy.footprint)


def test_it_beats_chance_by_far() -> None:
    for problem in (problem_of_tables(60, where=load_cluster(name)) for name in ("h100:2", "h100:8", "h100:8x2")):
        evaluator = cost_model().compile(problem)
        ours, chance = (find_planner(word).plan(problem, evaluator).total_s for word in ("dreamshard", "random"))
        assert ours < 0.95 * chance


def test_a_device_without_a_policy_takes_the_usual_one_and_says_so() -> None:
    problem = problem_of_tables(5)
    found = DreamShard().plan(problem, cost_model().compile(problem))
    assert found.left_out == ("dreamshard: no policy was trained for 'test'; that of simulated-h100 placed the tables",)
    h100, cpu = sample_problems()[0], problem_of_tables(20, where=load_cluster("cpu:4"))
    for known, name in ((h100, "simulated-h100"), (cpu, "cpu")):
        ours, named = (find_planner(word).plan(known, cost_model().compile(known))
                       for word in ("dreamshard", f"dreamshard:{name}"))  # fmt: skip
        assert ours.left_out == ()
        assert ours.total_s == named.total_s


def test_a_policy_of_another_device_is_refused_where_it_is_named() -> None:
    problem = problem_of_tables(5)
    with pytest.raises(UsageError, match=r"policy 'simulated-h100' was trained on simulated:h100 .* device is 'test'"):
        find_planner("dreamshard:simulated-h100").plan(problem, cost_model().compile(problem))


def test_one_table_and_one_device() -> None:
    for tables, local in ((1, 1), (1, 4), (6, 1)):
        problem = problem_of_tables(tables, local=local)
        found = DreamShard().plan(problem, cost_model().compile(problem))
        assert fits(problem, found.footprint)


def test_a_dead_end_is_repaired_or_ends_in_one_sentence() -> None:
    size = 1000 * 64 * 4
    tables = [table(f"t{i}", rows, 64, 5.0) for i, rows in enumerate((1000, 1000, 700, 600, 500, 150))]
    work = workload(*tables, batch_size=1, optimizer="sgd")
    space = Space(types=("table_wise",), kernels=("fused",))
    roomy = build_problem(work, cluster(2, hbm=int(size * 2.05)), space)
    evaluator = cost_model().compile(roomy)
    assert fits(roomy, DreamShard().plan(roomy, evaluator).footprint)
    rows = replace(space, types=("table_wise", "row_wise"))
    tight = build_problem(work, cluster(2, hbm=size * 2), rows)
    found = DreamShard().plan(tight, cost_model().compile(tight))
    assert fits(tight, found.footprint)
    assert found.left_out == ("dreamshard: the policy found no room for every table; they went longest first",)
    full = build_problem(work, cluster(2, hbm=int(size * 1.2)), space)
    with pytest.raises(NoPlanFound, match="dreamshard found no room for every table"):
        DreamShard().plan(full, cost_model().compile(full))


def test_a_budget_of_time_marks_the_result() -> None:
    problem = problem_of_tables(40)
    found = find_planner("dreamshard?samples=64").plan(
        problem, cost_model().compile(problem), budget=Budget(time_limit_s=1e-9)
    )
    assert found.truncated
    assert found.iterations == 1


def damaged(tmp_path: Path, **card: object) -> str:
    """The shipped policy with other words on its card."""
    tensors = load_file(SHIPPED)
    text = {**json.loads(SHIPPED.with_suffix(".json").read_text()), **card}
    save_file(tensors, tmp_path / "p.safetensors", metadata={"card": json.dumps(text)})
    return str(tmp_path / "p.safetensors")


def test_policies_of_another_schema_or_shape_are_refused(tmp_path: Path) -> None:
    DreamShard.kind.load(Path(damaged(tmp_path)))
    with pytest.raises(CorruptFile, match="dreamshard-card/1`, which `recsmith learn dreamshard` writes"):
        DreamShard.kind.load(Path(damaged(tmp_path, schema="recsmith/dreamshard-card/2")))
    tensors = load_file(SHIPPED)
    card = {"card": SHIPPED.with_suffix(".json").read_text()}
    save_file({**tensors, "base": tensors["base"][:2]}, tmp_path / "q.safetensors", metadata=card)
    with pytest.raises(CorruptFile, match="tensor 'base' has shape"):
        DreamShard.kind.load(tmp_path / "q.safetensors")
    with pytest.raises(CorruptFile, match="recsmith/dreamshard-card/1"):  # a cost model is no policy
        DreamShard.kind.load(SHIPPED.with_name("simulated-h100.safetensors"))
    with pytest.raises(
        UsageError, match="no learned policy is called 'nobody'; known: cpu, simulated-h100; or give the path"
    ):
        find_planner("dreamshard:nobody").plan(problem_of_tables(3), cost_model().compile(problem_of_tables(3)))
    shutil.copy(SHIPPED, tmp_path / "cut.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(SHIPPED.read_bytes()[:5000])
    with pytest.raises(CorruptFile, match="no whole safetensors file"):
        DreamShard.kind.load(tmp_path / "cut.safetensors")


def test_equal_inputs_give_equal_plans_in_any_order_of_tables() -> None:
    base = problem_of_tables(20)
    turned = replace(base.workload, tables=base.workload.tables[::-1])
    first, second = (
        plan(each, base.cluster, planner="dreamshard?samples=4", space=base.space).plan.digest
        for each in (base.workload, turned)
    )
    assert first == second
