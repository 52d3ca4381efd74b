"""Rows at home and in a log are what was written last, whichever way they went."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from recsmith.training.systems.tiers.tables import LoggedRows, log_rows  # noqa: E402

ROWS = 40
moves = st.lists(
    st.tuples(st.sampled_from(["log", "home", "bring", "read"]), st.sets(st.integers(0, ROWS - 1), max_size=6)),
    max_size=30,
)


def test_a_log_has_room_for_a_part_of_the_rows() -> None:
    assert [log_rows(rows) for rows in (1, 7, 8, 1000)] == [1, 1, 1, 125]


@given(moves)
def test_a_row_is_what_was_written_last(given: list[tuple[str, set[int]]]) -> None:
    shapes = ((2,), ())
    home, log = ([torch.zeros(n, *shape) for shape in shapes] for n in (ROWS, log_rows(ROWS)))
    stored, said = LoggedRows(home, log), np.zeros(ROWS)
    for number, (how, chosen) in enumerate(given, 1):
        rows = np.array(sorted(chosen), np.int64)
        values = [torch.full((len(rows), 2), float(number)), torch.full((len(rows),), float(number))]
        if how == "bring":
            stored.bring_home()
        elif how == "home" or (how == "log" and not stored.has_room(len(rows))):
            stored.write_home(rows, values)
            said[rows] = number
        elif how == "log":
            stored.write(rows, values)
            said[rows] = number
        for wide, narrow in [stored.read(rows)]:
            assert (wide.numpy() == said[rows][:, None]).all()
            assert (narrow.numpy() == said[rows]).all()
    stored.bring_home()
    assert stored.end == 0
    assert (home[1].numpy() == said).all()
    assert (home[0].numpy() == said[:, None]).all()
