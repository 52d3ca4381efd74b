"""Steps that were captured on one NVIDIA H200 (samples/h200/captures.tar.gz): what real traces of a GPU hold."""

import json
import tarfile
from pathlib import Path

import pytest

from recsmith.errors import UsageError
from recsmith.plans import Plan, plan_from_raw
from recsmith.prediction.graph import Kind
from recsmith.prediction.operators import KINDS
from recsmith.prediction.overheads import TERMS
from recsmith.prediction.predict import Prediction
from recsmith.prediction.predictions import in_host_memory, predict_capture
from recsmith.prediction.repricing import held_tables

SAMPLES = Path(__file__).parents[2] / "samples"
ARCHIVE = SAMPLES / "h200" / "captures.tar.gz"
pytestmark = pytest.mark.skipif(not ARCHIVE.is_file(), reason="samples stand in the repository alone")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("h200")
    chosen = {"mlp-4096-1", "dlrm-1024-1"}
    with tarfile.open(ARCHIVE) as archive:
        members = [each for each in archive if chosen & set(each.name.split("/"))]
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 on
        archive.extractall(home, members)
    return home / "captures"


def step_of(folder: Path) -> Prediction:
    """The replayed step, whose parts add up."""
    ((_, found),) = predict_capture(folder)
    assert found.measured_s is not None
    assert found.step_s == pytest.approx(found.measured_s, rel=0.1)
    assert sum(found.terms.values()) == pytest.approx(found.step_s)
    (rank,) = found.ranks
    assert rank.active_s + rank.exposed_comm_s + rank.idle_s == pytest.approx(found.step_s)
    return found


def test_a_small_step_is_bound_by_the_host_and_its_lookup_is_known(folder: Path):
    found = step_of(folder / "dlrm-1024-1")
    assert sum(found.terms.get(term, 0.0) for term in TERMS) > 0.9 * found.step_s
    launches = [event for event in found.walk.graph.ranks[0] if event.kind == Kind.LAUNCH]
    assert len(launches) > 100
    assert all(0 < event.work_s < 1e-3 and len(event.label) < 150 and "<" not in event.label for event in launches)
    assert {event.term for event in launches} <= set(KINDS) - {"other"}
    (held,), batch = held_tables(found.walk.graph)
    assert (batch, held.tables, held.columns, held.ids) == (1024, 26, 26 * 128, 26 * 4.0)
    assert held.elements == 26 * 500_000 * 128
    with pytest.raises(UsageError, match="the machine is a CPU"):
        predict_capture(folder / "dlrm-1024-1", batches=[4096])


def test_a_large_step_is_bound_by_the_device(folder: Path):
    found = step_of(folder / "mlp-4096-1")
    assert next(iter(found.terms)) == "gemm"
    assert found.ranks[0].active_s > 0.95 * found.step_s
    tape = found.walk.graph.ranks[0]
    shares = sum(event.kernel.share for event in tape if event.kernel and event.term == "gemm")
    assert shares == pytest.approx(5 + 4 + 5)  # forward, gradients of inputs and of weights
    assert [event.label for event in tape if event.kind == Kind.ISSUE] == ["c10d::allreduce_"] * 2
    assert found.notes == ()


def test_a_plan_with_tables_in_host_memory_says_that_lookups_stay_as_fast_as_captured():
    with tarfile.open(SAMPLES / "h200-production" / "captures.tar.gz") as archive:
        file = archive.extractfile("captures/jobs.json")
        assert file is not None
        jobs = json.load(file)

    def plan(how: str) -> Plan:
        return plan_from_raw(jobs[f"dlrm-8192-{how}"]["plan"], how)

    (note,) = in_host_memory(plan("uvm"), on_gpu=True)  # measured 12.0 ms, predicted from the other plan's capture 6.4
    assert note.startswith("the plan has tables under fused_uvm, and their lookups are predicted as fast as")
    assert "fused_uvm_caching" in in_host_memory(plan("cached"), on_gpu=True)[0]
    assert in_host_memory(plan("whole"), on_gpu=True) == in_host_memory(None, on_gpu=True) == ()
    assert in_host_memory(plan("uvm"), on_gpu=False) == ()
