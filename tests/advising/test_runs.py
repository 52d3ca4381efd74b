"""Advice on a run is a dry run with each switch, beside the dry run as it is."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torchrec")

from support.synthetic_traces import write_capture
from support.systems import needs_systems

from recsmith.advising.runs import advise_run, core_switches
from recsmith.analyses.advice import Advice
from recsmith.errors import UsageError
from recsmith.planning.simulate import price
from recsmith.plans import Placement, save_plan
from recsmith.training import DenseOptimizer, Run, RunData, RunModel, RunOptimizers, load_run
from recsmith.training.launch.dry_run import described
from recsmith.training.seams import systems

pytestmark = pytest.mark.usefixtures("torchrec")
FEATURES = [{"name": name, "num_embeddings": 3000, "pooling_factor": 4} for name in "ab"]
DATA = {"format": "generator", "seed": 1, "dense": 2, "features": FEATURES, "num_samples": 5000}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """On two ranks, with layers that are wide enough to be narrow."""
    return Run(
        data=RunData(train=DATA, batch_size=256), model=RunModel(embedding_dim=16, bottom=(128,), top=(128, 64)),
        optimizers=RunOptimizers(dense=DenseOptimizer(name="adam")), ranks=2, steps=400,
        output=str(tmp_path_factory.mktemp("runs") / "out"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def advice(run: Run, torchrec: None) -> Advice:
    return advise_run(run)


@needs_systems("dedup", "halves", "narrow", "thresholds", "tiers", "towers")
def test_every_switch_is_tried_and_priced_by_its_dry_run(run: Run, advice: Advice):
    found = {each.switch.name: each for each in advice.switches}
    assert {
        "products in bf16", "twice the batch", "towers", "distinct bags alone", "thresholded gradients",
        "narrow dense layers", "tables in halves", "tables on disk",
    } <= set(found)  # fmt: skip
    base = described(run).step
    assert base is not None
    assert advice.base.step_s == base.step_s
    narrow = found["narrow dense layers"]
    step, priced = described(run, narrow.switch.settings).step, narrow.price
    assert step is not None
    assert priced is not None
    assert (priced.step_s, narrow.gain) == (step.step_s, pytest.approx(1 - step.step_s / base.step_s))
    assert found["towers"].verdict == "cannot"
    assert found["towers"].why.startswith("model.table_module (towers): nobody says which tables are a tower")
    double = found["twice the batch"].price
    assert double is not None
    assert double.samples == 512
    assert not Path(run.output).exists()


def test_switches_of_systems_are_settings_of_a_run(run: Run):
    """Each is a run that another one is made of, and is offered no more where it is on."""
    for system in systems():
        for switch in system.switches(run):
            made = load_run(run, switch.settings)
            assert made != run
            assert switch not in system.switches(made)
            assert (Path(__file__).parents[2] / "docs" / switch.page).is_file()


def test_on_a_cluster_the_tables_of_a_run_are_planned_that_this_machine_cannot_hold(run: Run):
    huge = [{**each, "num_embeddings": 2_000_000_000} for each in FEATURES]  # 128 GB each
    large = replace(run, data=RunData(train={**DATA, "features": huge}, batch_size=256))
    advice = advise_run(large, cluster="h100:4", cost_model="torchrec")
    assert "tables in fp16" in [each.switch.name for each in advice.switches]
    assert (advice.base.samples, advice.base.memory_bytes > 2**35) == (256, True)


def test_a_capture_of_the_run_is_its_base(run: Run, advice: Advice, tmp_path: Path):
    folder = write_capture(tmp_path / "trace", [0.0, 1.0])
    found = advise_run(run, capture=str(folder))
    assert found.base.step_s == pytest.approx(0.01)
    assert found.about[0].startswith("captured: a step took 10 ms, and its trace says ")
    assert [each.switch.name for each in found.switches] != []
    assert found.base.step_s != advice.base.step_s
    with pytest.raises(UsageError, match="the capture is of 2 ranks, and the job is advised on for 1"):
        advise_run(replace(run, ranks=1), capture=str(folder))
    with pytest.raises(UsageError, match="leave out the cluster, or the capture"):
        advise_run(run, capture=str(folder), cluster="h100:2")


def test_what_a_whole_step_takes_is_of_a_cluster(run: Run):
    with pytest.raises(UsageError, match="say what a whole step takes together with a cluster"):
        advise_run(run, step_s=0.01)


def test_short_messages_are_priced_under_a_plan_of_a_file_and_a_plan_of_hosts_is_not_made_anew(
    run: Run, tmp_path: Path
):
    made = described(run).plan
    links = replace(made.cluster.links, inter_host_bandwidth=1e6)
    slow = replace(made.cluster, hosts=2, local_world_size=1, links=links)
    whole = [
        Placement(table=each.name, sharding_type="table_wise", compute_kernel="fused", ranks=(rank,))
        for rank, each in enumerate(made.workload.tables)
    ]
    save_plan(price(made.workload, slow, whole), str(tmp_path / "plan.json"))
    kept = replace(run, plan=str(tmp_path / "plan.json"))
    alone = described(kept).step
    short = described(kept, ("comms.forward=fp16", "comms.backward=bf16")).step
    assert alone is not None
    assert short is not None
    assert short.embeddings_s < alone.embeddings_s
    names = [each.name for each in core_switches(kept)]
    assert "fp16 and bf16 between ranks" in names
    assert "a new plan" not in names
