"""Exchanges for training: what is read, left out and refused, and that no case stands in two parts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.exchanged import exchanged

from recsmith.errors import UsageError
from recsmith.learning.comm import comm_noise, digest, read_exchanges, split_blocks
from recsmith.learning.comm.learn import WaitedAlphaBeta
from recsmith.measuring.about import About
from recsmith.measuring.exchanges import GPU, draw_exchange
from recsmith.measuring.folder import open_folder


def test_a_folder_is_a_block_of_its_exchanges(tmp_path: Path) -> None:
    folders = [exchanged(tmp_path, ranks) for ranks in (4, 2)]
    blocks, left_out, origin, versions = read_exchanges([*folders, exchanged(tmp_path, 4, seed=1)])
    assert [(block.ranks, len(block)) for block in blocks] == [(2, 60), (4, 120)]
    assert left_out == 0
    assert (origin.hardware, origin.backend, origin.device, origin.per_host) == (
        "simulated:h100", "simulated", "h100, simulated", 8
    )  # fmt: skip
    assert versions.startswith("recsmith ")
    first, block = draw_exchange(0, 0, 4, GPU), blocks[1]
    assert block.load.sent[0].tolist() == first.sent_bytes
    assert block.load.received[0].tolist() == first.received_bytes
    assert block.load.skew_s[0] == pytest.approx(first.skew_s)
    assert block.load.forward[0] == first.forward
    assert (block.seconds >= block.load.wait_s).all()
    assert len(set(block.case.tolist())) == 108  # two of sixty are measured again, of each seed
    assert comm_noise(blocks).max() == 0
    assert digest(blocks) != digest(blocks[:1])


def test_a_case_stands_in_one_part_whatever_its_ranks(tmp_path: Path) -> None:
    blocks, *_ = read_exchanges([exchanged(tmp_path, ranks) for ranks in (2, 3)])
    parts = [{case for block in part for case in block.case.tolist()} for part in split_blocks(blocks, seed=0)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 54
    assert all(parts)
    assert sum(len(block) for part in split_blocks(blocks, seed=0) for block in part) == 120


def test_noise_is_what_revisits_differ_by(tmp_path: Path) -> None:
    blocks, *_ = read_exchanges([exchanged(tmp_path, 2, hardware="simulated:h100?noise=0.1")])
    assert 0 < np.median(comm_noise(blocks)) < 0.3


def local(path: Path, rows: list[dict[str, Any]], ranks: int = 2) -> Path:
    """A folder of exchanges between local ranks."""
    usual = {
        "number": 0, "backend": "gloo", "oversubscribed": False, "device": "a test", "versions": "recsmith 0",
        "direction": "forward", "sent_bytes": [1] * ranks, "received_bytes": [1] * ranks, "skew_s": [0.0] * ranks,
        "median_s": [1.0] * ranks, "status": "ok",
    }  # fmt: skip
    with open_folder(path, About(kind="comm", hardware="local ranks", seed=0, ranks=ranks)) as folder:
        for position, row in enumerate(rows):
            folder.add(usual | {"position": position, "number": position} | row)
    return path


def test_more_ranks_than_cores_are_left_out(tmp_path: Path) -> None:
    blocks, left_out, origin, _ = read_exchanges([local(tmp_path, [{}] * 55 + [{"oversubscribed": True}] * 7)])
    assert (len(blocks[0]), left_out, origin.per_host) == (55, 7, None)


def test_devices_of_nccl_are_one_however_many_there_are(tmp_path: Path) -> None:
    folders = [
        local(tmp_path / str(ranks), [{"backend": "nccl", "device": f"{ranks} x H100"}] * 30, ranks) for ranks in (2, 4)
    ]
    blocks, _, origin, _ = read_exchanges(folders)
    assert ([block.ranks for block in blocks], origin.device) == ([2, 4], "H100")


def test_what_cannot_be_learned_from_is_refused(tmp_path: Path) -> None:
    few, other = local(tmp_path / "few", [{}] * 5), exchanged(tmp_path, 2)
    with pytest.raises(UsageError, match="5 of 5 exchanges are usable"):
        read_exchanges([few])
    with pytest.raises(UsageError, match=r"several devices: local ranks, gloo \(a test\), simulated:h100, simulated"):
        read_exchanges([few, other])
    about = json.loads((few / "about.json").read_text())
    (few / "about.json").write_text(json.dumps(about | {"kind": "compute"}))
    with pytest.raises(UsageError, match=r"holds compute measurements.*; exchanges are of `recsmith measure comm`"):
        read_exchanges([few])


def test_alpha_beta_and_the_wait_are_exact_where_the_rules_say_no_more(tmp_path: Path) -> None:
    blocks, *_ = read_exchanges([exchanged(tmp_path, ranks) for ranks in (4, 8)])
    model = WaitedAlphaBeta(blocks)
    for block in blocks:
        together = block.take(block.simultaneous)
        assert model.predict(together) == pytest.approx(together.seconds, rel=1e-6)
        late = block.take(~block.simultaneous)
        assert (model.predict(late) >= late.seconds * (1 - 1e-6)).all()  # what is done before the last one starts
        assert model.predict(late).mean() > 1.005 * late.seconds.mean()
    other, *_ = read_exchanges([exchanged(tmp_path, 6)])
    together = other[0].take(other[0].simultaneous)
    assert model.predict(together) == pytest.approx(together.seconds, rel=1e-6)  # by the nearest number of ranks
