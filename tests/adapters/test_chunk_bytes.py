"""Large tensors of a checkpoint are read some rows at a time, and are what PyTorch's own reader gives."""

from pathlib import Path
from typing import Any

import pytest

from recsmith.errors import CorruptFile

pytestmark = pytest.mark.usefixtures("torchrec")


def written(folder: Path) -> dict[str, Any]:
    import torch

    from recsmith.training.stores.checkpoint import write_checkpoint

    torch.manual_seed(0)
    state = {
        "model.t.weight": torch.randn(37, 8), "model.t.half": torch.randn(50, 4).to(torch.bfloat16),
        "optimizer.sums": torch.rand(301, dtype=torch.float64), "step": torch.tensor(3.0),
        "model.empty": torch.empty(0, 8),
    }  # fmt: skip
    write_checkpoint(folder, state)
    return state


def test_rows_come_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from recsmith.adapters import chunk_bytes
    from recsmith.adapters.checkpoints import read_checkpoint
    from recsmith.training.stores.checkpoint import CheckpointRows

    state, most = written(tmp_path), list[int]()
    monkeypatch.setattr(chunk_bytes, "BLOCK", 96)  # three rows of the first table
    rows_of = chunk_bytes.rows_of

    def counted(*arguments: Any) -> Any:
        for first, block in rows_of(*arguments):
            most.append(block.nbytes)
            yield first, block

    monkeypatch.setattr(chunk_bytes, "rows_of", counted)
    found = CheckpointRows(tmp_path).state_dict()
    assert found.keys() == state.keys()
    for name, each in found.items():
        assert each.dtype == state[name].dtype
        assert torch.equal(each, state[name]), name
    assert max(most) <= 96
    assert len(most) > 37 // 3 + 50 // 12 + 301 // 12

    [chunk] = read_checkpoint(tmp_path).entries["model.t.weight"].chunks
    parts = list(rows_of(tmp_path, chunk, torch.float32, (5, 20), (2, 6)))
    assert [first for first, _ in parts] == [0, 3, 6, 9, 12]
    made = torch.cat([torch.from_numpy(block.copy()).view(torch.float32) for _, block in parts])
    assert torch.equal(made, state["model.t.weight"][5:20, 2:6])


def test_a_chunk_of_another_type_is_refused(tmp_path: Path) -> None:
    import torch

    from recsmith.adapters.checkpoints import read_checkpoint
    from recsmith.adapters.chunk_bytes import rows_of

    written(tmp_path)
    [chunk] = read_checkpoint(tmp_path).entries["model.t.half"].chunks
    with pytest.raises(CorruptFile, match="is not the one that the metadata names"):
        list(rows_of(tmp_path, chunk, torch.float16, (0, 1), (0, 4)))
