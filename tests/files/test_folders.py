"""Files of a folder come in the order in which they were numbered."""

import random
from pathlib import Path

from recsmith.files import in_order


def test_numbers_in_names_count_as_numbers():
    wanted = [
        Path(each)
        for each in (
            "2/part-9",
            "10/part-1",
            "10/part-01",
            "10/part-2.gz",
            "a",
            "day_2",
            "day_10",
            "day_10b",
            "day_b",
            "x1y2",
            "x1y10",
        )
    ]
    wanted[1:3] = sorted(wanted[1:3], key=str)
    mixed = random.Random(3).sample(wanted, len(wanted))
    assert in_order(mixed) == wanted
