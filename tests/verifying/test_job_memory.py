"""What ranks are predicted to allocate when a plan is verified."""

from dataclasses import replace

from support.plans import two_tables

from recsmith.verifying.job_memory import predicted_bytes
from recsmith.verifying.jobs import runnable


def test_the_base_is_the_batch_its_outputs_and_at_most_two_gradients():
    made = two_tables()
    rows = tuple(replace(each, sharding_type="row_wise", ranks=(0, 1), widths=()) for each in made.placements)
    outputs = 1024 * 2 * 64 * 4
    batch = 2 * 1024 * (5 * 8 + 16)
    for each in (made, replace(made, placements=rows)):
        for _, base in predicted_bytes(runnable(each, None)):
            assert batch + outputs <= base <= batch + 3 * outputs
