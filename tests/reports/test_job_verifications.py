"""What people and programs read of a plan that trained in a TorchRec job."""

import json

import pytest
from support.build import made_plan
from support.printed import line_of, text_of

from recsmith.files import dump_json
from recsmith.reports.verifications import job_verification_report, job_verification_to_raw
from recsmith.verifying.jobs.verification import JobVerification, RankMeasure

RANKS = tuple(
    RankMeasure(
        rank=rank, forward_s=1e-3, backward_s=2e-3, step_s=3e-3, predicted_s=4e-3, shards_bytes=2**20,
        base_bytes=2**20, peak_bytes=2**21 + rank * 2**19,
    )
    for rank in range(2)
)  # fmt: skip
FOUND = JobVerification(plan=made_plan(), steps=5, ranks=RANKS)


def test_each_rank_has_its_times_and_its_memory(capsys: pytest.CaptureFixture[str]):
    text = text_of(job_verification_report(FOUND), capsys)
    assert "5 steps of 16 samples on 2 ranks, TorchRec on CPU (gloo)" in text
    assert "predicted within 20.0% of measured" in text
    assert line_of("1", text).split() == [
        "1", "1", "ms", "2", "ms", "3", "ms", "4", "ms", "2.5", "MiB", "2", "MiB", "1", "MiB", "0.800",
    ]  # fmt: skip


def test_the_data_holds_what_was_predicted_and_its_parts():
    raw = job_verification_to_raw(FOUND)
    assert json.loads(dump_json(raw)) == raw
    assert (raw["schema"], raw["backend"], raw["digest"]) == ("recsmith/verification/1", "torchrec", FOUND.plan.digest)
    first = raw["ranks"][0]
    assert first["predicted_bytes"] == first["shards_bytes"] + first["base_bytes"] == 2**21
