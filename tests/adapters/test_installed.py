"""What is said of a missing or mismatched trio."""

from pathlib import Path

import pytest

from recsmith.adapters import installed
from recsmith.errors import MissingExtra

DOCS = Path(__file__).parents[2] / "docs" / "torchrec.md"


def test_a_trio_that_belongs_together_is_no_trouble() -> None:
    assert installed.mismatches({"torch": "2.13.0+cpu", "fbgemm_gpu": "1.8.0", "torchrec": "1.8.0"}) == []


@pytest.mark.parametrize(
    ("fbgemm", "torch", "torchrec"), [("1.8.0", "2.13.0+cpu", "1.8.0"), ("1.9.0", "2.14.1+cu130", "1.9.2")]
)
def test_every_trio_that_was_tried_is_taken(fbgemm: str, torch: str, torchrec: str) -> None:
    found: dict[str, str | None] = {"torch": torch, "fbgemm_gpu": fbgemm, "torchrec": torchrec}
    assert installed.mismatches(found) == []
    assert installed.mismatches(found | {"torch": "2.12.0"}) == [
        f"torch is 2.12.0; {installed.PAIRS[fbgemm[:3]]} belongs to the others"
    ]
    assert DOCS.read_text("utf-8").count(f"| {torch} | {fbgemm} | {torchrec} | {installed.tried(found)}") == 1


def test_missing_and_mismatched_parts_are_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        installed, "trio_versions", lambda: {"torch": "2.15.0", "fbgemm_gpu": None, "torchrec": "1.80.0"}
    )
    with pytest.raises(MissingExtra) as error:
        installed.require_torchrec()
    said = str(error.value)
    assert "fbgemm_gpu is not installed" in said
    assert "torch is 2.15.0; 2.13 belongs to the others" in said
    assert "torchrec is 1.80.0; 1.8 belongs" in said
    assert "pip install 'torch==2.13.*' 'fbgemm-gpu-cpu==1.8.*'" in said
    assert "pip install --no-deps torchrec==1.8.0" in said


def test_versions_of_what_is_not_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    assert set(installed.trio_versions().values()) == {None}
