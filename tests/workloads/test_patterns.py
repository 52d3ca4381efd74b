import pytest

from recsmith.errors import UsageError
from recsmith.workloads.patterns import check_fit, fits


@pytest.mark.parametrize(
    ("pattern", "table", "said"),
    [
        ("user", "user", True), ("user", "user_id", False), ("user*", "user_id", True), ("t[12]", "t2", True),
        ("t[0]", "t[0]", True), ("t?", "t", False), ("User", "user", False),
    ],
)  # fmt: skip
def test_a_table_has_the_name_or_one_of_the_pattern(pattern: str, table: str, said: bool):
    assert fits(pattern, table) is said


def test_the_first_one_that_fits_none_is_refused_with_the_nearest():
    check_fit("rule", ["user*", "item"], ["user_id", "item"])
    check_fit("rule", ["user"], [])
    with pytest.raises(UsageError, match=r"\Arule 'itme' matches no table; did you mean 'item'\?"):
        check_fit("rule", ["user*", "itme", "x"], ["user_id", "item"])
