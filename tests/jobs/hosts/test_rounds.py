"""Who trains together: hosts that all reach each other, and the half of a parted network that goes on."""

from pathlib import Path

import pytest

from recsmith.errors import CorruptFile
from recsmith.jobs.hosts.rounds import (
    HostAgent,
    HostRound,
    group_of,
    in_order,
    may_replace,
    read_round,
    write_round,
)


def a_round(*ids: str, number: int = 1) -> HostRound:
    return HostRound(
        number=number, hosts=tuple(HostAgent(id=each, name=each, address="h", port=1, ranks=1) for each in ids)
    )


def test_a_group_is_of_hosts_that_all_reach_each_other():
    everyone = {"a": "bc", "b": "ac", "c": "ab"}
    assert group_of("a", everyone) == ["a", "b", "c"]
    assert group_of("a", everyone | {"c": "a", "b": "a"}) in (["a", "b"], ["a", "c"])
    assert group_of("c", {"a": "b", "b": "a", "c": ""}) == ["c"]
    assert group_of("a", {"a": "b", "b": ""}) == ["a"]  # which b does not reach


def test_hosts_that_stay_keep_their_order():
    assert in_order(["a", "b", "d"], a_round("c", "b", "a")) == ["b", "a", "d"]
    assert in_order(["a", "b"], None) == ["a", "b"]


def test_of_a_network_that_parted_one_half_goes_on():
    running = a_round("a", "b", "c", "d")
    assert may_replace(running, "abc", "abcd")
    assert may_replace(running, "ab", "abcd")
    assert not may_replace(running, "cd", "abcd")
    assert may_replace(running, "cd", "cd")  # the machines of a and b are gone
    assert not may_replace(running, "xyz", "ab")
    assert may_replace(running, "xyz", "")


def test_a_round_is_read_as_it_was_written_and_damage_is_told(tmp_path: Path):
    assert read_round(tmp_path) is None
    write_round(tmp_path, made := a_round("a", "b", number=7))
    assert read_round(tmp_path) == made
    (tmp_path / "round.json").write_text('{"number": "many"}')
    with pytest.raises(CorruptFile, match="number"):
        read_round(tmp_path)
