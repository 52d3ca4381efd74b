"""Samples as groups: which are used, and that no case stands in two parts."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.learned import groups
from support.measured import Stub, answer

from recsmith.errors import UsageError
from recsmith.hardware import SCALES
from recsmith.learning import costs
from recsmith.learning.costs import mapped, noise_floor, read_groups, work_of_case
from recsmith.learning.preparation import split
from recsmith.measuring.cases import Cases
from recsmith.measuring.compute import measure_compute
from recsmith.measuring.folder import Limit
from recsmith.measuring.samples import SLOW_PROBE


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.integers(0, 5))
def test_no_case_stands_in_two_parts(cases: list[int], seed: int) -> None:
    case = np.array(cases)
    parts = split(case, seed)
    assert (np.sum(parts, axis=0) == 1).all()
    seen = [set(case[part].tolist()) for part in parts]
    assert sum(map(len, seen)) == len(set(cases))


def test_four_of_five_cases_train() -> None:
    sizes = [int(part.sum()) for part in split(np.arange(1000), 3)]
    assert sizes == [800, 100, 100]
    assert not np.array_equal(split(np.arange(1000), 3)[0], split(np.arange(1000), 4)[0])


def test_some_of_the_samples_keep_their_pieces() -> None:
    all_ = groups(40)
    some = all_.take(np.arange(40) % 3 == 1)
    assert len(some) == 13
    assert some.tables.tolist() == all_.tables[1::3].tolist()
    assert some.summed(some.ids) == pytest.approx(all_.summed(all_.ids)[1::3])
    assert some.bags.tolist() == np.repeat(all_.batch[1::3], some.tables).tolist()
    assert some.digest != all_.digest == groups(40).digest


def test_the_digest_tells_blocks_and_is_that_of_before_without_them() -> None:
    found = groups(10)
    blocks = replace(found, blocks=np.where(np.arange(10) == 3, 8, 1))
    assert blocks.digest != found.digest
    assert replace(found, inputs=found.inputs[:, :16]).digest == found.digest


def test_work_is_counted_as_cases_are_drawn() -> None:
    found = groups(60)
    for i, work in enumerate(work_of_case(found)):
        pieces = range(found.start[i], found.start[i + 1])
        rows = sum((found.ids[p] + found.batch[i]) * (1 + found.dim[p] / 64) / 2 for p in pieces)
        slower = (3.5 if found.optimizer[i] == 1 else 1) * (2 if found.data_type[i] == 1 else 1)
        assert work == pytest.approx(rows * slower)


def test_the_noise_floor_is_of_cases_that_stand_twice() -> None:
    all_ = groups(100)
    assert len(noise_floor(all_)) == 10
    twin = all_.take(np.isin(np.arange(100), [8, 9]))
    first, second = twin.total
    assert noise_floor(twin) == pytest.approx([abs(second / first - 1)])


def test_outputs_that_malloc_maps_anew_are_known() -> None:
    found = groups(30)
    large = found.summed(found.bags * found.dim * 4) > 2**25
    assert mapped(found).tolist() == large.tolist()


def _measure(folder: Path, seed: int = 0, device: str = "a test", scale: str = "check", **probes: float) -> None:
    """20 steady samples; probes: of single cases, the others have 1."""
    stub = Stub(
        lambda case, visit: answer(case, seconds=case.number + 1.0, probe_s=probes.get(f"case_{case.number}", 1.0))
    )
    stub.device = device
    measure_compute(stub, Cases(seed=seed, scale=SCALES[scale]), folder, Limit(samples=20))


def test_folders_are_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "LEAST_SAMPLES", 5)
    _measure(tmp_path / "a", case_3=1.01 * SLOW_PROBE, case_4=0.99 * SLOW_PROBE)
    _measure(tmp_path / "b", seed=1)
    _measure(tmp_path / "c", scale="cpu-caches")
    found, left_out, origin = read_groups([tmp_path / name for name in "abc"])
    assert (len(found), left_out, origin.hardware, origin.device) == (60, 0, "stub", "a test")
    assert (found.seconds[:, 1] == 2 * found.seconds[:, 0]).all()
    numbers = found.seconds[:, 0] - 1  # of the case in its folder
    cases = {(i // 20, number): case for i, (number, case) in enumerate(zip(numbers, found.case, strict=True))}
    assert all(cases[i // 20, number] == case for i, (number, case) in enumerate(zip(numbers, found.case, strict=True)))
    assert len(set(found.case)) == len(cases) < 60
    assert (0, 3.0) not in cases
    assert (0, 4.0) in cases


def test_too_few_samples_and_several_devices_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _measure(tmp_path / "a")
    with pytest.raises(UsageError, match="20 of 20 steady samples are usable; training takes at least 50"):
        read_groups([tmp_path / "a"])
    monkeypatch.setattr(costs, "LEAST_SAMPLES", 5)
    _measure(tmp_path / "b", device="another")
    with pytest.raises(UsageError, match=r"several devices: stub \(a test\), stub \(another\)"):
        read_groups([tmp_path / "a", tmp_path / "b"])
