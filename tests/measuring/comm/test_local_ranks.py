"""Measuring all-to-alls between local ranks: refusals, and a real run of two ranks."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.exchanged import EXACT, folder_of

from recsmith.errors import UsageError
from recsmith.measuring.columns import COMM
from recsmith.measuring.comm.exchanges import draw_exchange
from recsmith.measuring.comm.local_ranks import measure_comm
from recsmith.measuring.limit import Limit
from recsmith.measuring.rows import read_columns


@pytest.mark.parametrize(
    ("ranks", "limit", "rule"),
    [(1, Limit(budget_s=1), "1 ranks exchange nothing"), (2, Limit(samples=3), "give a --budget such as 1m")],
)
def test_wrong_words_are_refused(tmp_path: Path, ranks: int, limit: Limit, rule: str):
    with pytest.raises(UsageError, match=rule):
        measure_comm(tmp_path / "m", ranks, limit)
    assert not (tmp_path / "m").exists()


@pytest.mark.skipif(find_spec("torchrec") is None or find_spec("pyarrow") is None, reason="needs TorchRec and pyarrow")
def test_two_ranks_go_on_where_the_last_run_ended(tmp_path: Path):
    before = len(read_columns(folder_of(tmp_path, EXACT), ["position"])["position"])
    added = measure_comm(tmp_path, 2, Limit(budget_s=1.0))
    assert added > 0
    found = read_columns(tmp_path, [column.name for column in COMM])
    assert found["position"] == list(range(before + added))
    found = {name: values[before:] for name, values in found.items()}
    assert set(found["status"]) == {"ok"}
    for fastest, median in zip(found["fastest_s"], found["median_s"], strict=True):
        assert len(fastest) == len(median) == 2
        assert all(0 < low <= middle for low, middle in zip(fastest, median, strict=True))
    first: Any = draw_exchange(0, before, 2)
    assert (found["width"][0], found["sent_bytes"][0]) == (list(first.width), first.sent_bytes)
    model = json.loads((tmp_path / "alpha-beta.json").read_text())
    assert model["label"] == "alpha-beta fitted to 2 gloo ranks on one machine"
