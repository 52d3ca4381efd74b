"""A case: one fusion group, within a scale."""

from dataclasses import replace

import pytest
from support.measured import group

from recsmith.errors import UsageError
from recsmith.hardware import SCALES, Case


def test_a_case_counts_its_ids_weights_and_outputs():
    case = group((100, 8, 2.5, 0.0), (10, 4, 0.0, 1.0), batch_size=3)
    assert (case.lookups, case.elements, case.outputs, case.data_type) == ((8, 0), 840, 36, "fp32")


def test_tables_of_two_types_are_two_groups():
    case = group((100, 8, 1.0, 0.0), (10, 4, 0.0, 1.0))
    mixed = (case.tables[0], replace(case.tables[1], data_type="fp16"))
    with pytest.raises(UsageError, match="differ in data_type"):
        Case(seed=0, number=0, workload=replace(case.workload, tables=mixed))


@pytest.mark.parametrize(
    "case",
    [
        group((10, 4, 500.0, 0.0), batch_size=100),
        group((10**6, 4, 1.0, 0.0)),
        group((10, 1024, 0.0, 0.0), batch_size=999),
    ],
)
def test_a_case_beyond_its_scale_is_refused(case: Case):
    case.check(SCALES["cpu"])
    with pytest.raises(UsageError, match="scale check allows"):
        case.check(SCALES["check"])
