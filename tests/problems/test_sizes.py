"""Sizes that integers hold: many tables on many devices are planned, what no machine trains is refused."""

import numpy as np
import pytest
from support.cases import Case, cluster, table, workload

from recsmith.errors import UsageError


def test_hundreds_of_terabytes_on_thousands_of_devices_do_not_overflow():
    tables = [table(f"t{i}", 10_000_000_000, 128) for i in range(100)]  # 5 TB each in fp32
    problem = Case(workload(*tables, batch_size=256), cluster(8, 512)).problem
    assert (problem.pieces.head.device > 0).all()
    assert (problem.pieces.tail.device > 0).all()
    assert float(problem.pieces.head.device.max()) * len(tables) * 8 < np.iinfo(np.int64).max


def test_a_table_that_no_integer_counts_on_all_ranks_is_refused():
    huge = table("t", 2**50, 1024)
    with pytest.raises(UsageError, match=r"weights and buffers add up to more than 5e\+18 bytes, most for table 't'"):
        Case(workload(huge), cluster(8, 512)).problem  # noqa: B018
