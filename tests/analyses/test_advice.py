"""Advice on a job whose prices are told: what pays, in which order, and what goes together."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.analyses.advice import LEAST_GAIN, JobPrice, Pricing, Switch, advise_by
from recsmith.errors import UsageError


def a_switch(name: str, *settings: str) -> Switch:
    return Switch(name=name, change=f"{name}: on", settings=settings, quality="exact", page="x.md")


def a_price(step_s: float, memory: int = 1000, samples: int = 100, error: float = 0.1, apart: float = 0.0) -> JobPrice:
    return JobPrice(step_s=step_s, samples=samples, memory_bytes=memory, error=error, apart=apart)


def priced(prices: Mapping[str, JobPrice | str]) -> Pricing:
    """What tells the price of switches by their names, joined by '+'; a text is why they cannot be had."""

    def price(switches: Sequence[Switch]) -> JobPrice:
        found = prices["+".join(each.name for each in switches)]
        if isinstance(found, str):
            raise UsageError(found)
        return found

    return price


def test_each_switch_has_its_verdict_and_the_best_is_first():
    prices = {
        "": a_price(10.0), "a": a_price(9.0), "b": a_price(6.0), "c": a_price(10.1), "d": a_price(11.0),
        "e": a_price(10.0, memory=500), "f": "f needs more hosts", "b+a": a_price(5.5),
    }  # fmt: skip
    advice = advise_by(priced(prices), [a_switch(name) for name in "abcdef"], ["told"])
    assert [(each.switch.name, each.verdict) for each in advice.switches] == [
        ("b", "pays"), ("a", "pays"), ("e", "memory"), ("c", "no"), ("d", "no"), ("f", "cannot"),
    ]  # fmt: skip
    assert advice.switches[-1].why == "f needs more hosts"
    assert advice.switches[0].gain == pytest.approx(0.4)
    assert advice.switches[0].gain_error == pytest.approx(0.04)
    assert (advice.together, advice.gain) == (("b", "a"), pytest.approx(0.45))
    assert advice.verdict.startswith("b first; b and a together save 45%")


def test_gains_whose_intervals_overlap_are_ordered_by_what_a_trial_costs():
    prices = {"": a_price(10.0), "cheap": a_price(8.1), "dear": a_price(8.0), "cheap+dear": a_price(8.0)}
    advice = advise_by(priced(prices), [a_switch("cheap"), a_switch("dear")], [])
    assert [each.switch.name for each in advice.switches] == ["cheap", "dear"]


def test_what_another_switch_has_gained_already_counts_nothing():
    prices = {"": a_price(10.0), "a": a_price(6.0), "b": a_price(9.0), "a+b": a_price(5.95)}
    advice = advise_by(priced(prices), [a_switch("b"), a_switch("a")], [])
    assert (advice.together, advice.joined) == (("a",), prices["a"])


def test_switches_of_one_setting_or_that_refuse_each_other_are_not_joined():
    prices = {"": a_price(10.0), "a": a_price(6.0), "b": a_price(8.0), "c": a_price(9.0), "a+c": "a refuses c"}
    switches = [a_switch("a", "comms.forward=fp16"), a_switch("b", "comms.forward=bf16"), a_switch("c")]
    assert advise_by(priced(prices), switches, []).together == ("a",)


def test_a_gain_that_the_price_cannot_tell_apart_is_a_tie_and_nothing_pays():
    prices = {"": a_price(10.0), "a": a_price(9.5, apart=0.08)}
    advice = advise_by(priced(prices), [a_switch("a")], [])
    assert [(each.verdict, each.gain_error) for each in advice.switches] == [("tie", 0.08)]
    assert (advice.together, advice.gain) == ((), 0.0)
    assert advice.verdict.startswith("nothing that was tried")


def test_a_larger_batch_is_judged_by_the_device_time_of_a_sample():
    prices = {"": a_price(10.0), "a": a_price(16.0, samples=200), "b": a_price(20.0, samples=200)}
    advice = advise_by(priced(prices), [a_switch("a"), a_switch("b")], [])
    assert [(each.verdict, each.gain) for each in advice.switches] == [("pays", pytest.approx(0.2)), ("no", 0.0)]


def test_a_job_without_a_price_has_no_advice():
    with pytest.raises(UsageError, match="the tables do not fit"):
        advise_by(priced({"": "the tables do not fit"}), [a_switch("a")], [])


@given(st.lists(st.floats(0.1, 3.0), min_size=1, max_size=6))
def test_joined_switches_never_lose_and_each_gains_enough(factors: list[float]):
    """Of switches that multiply the step."""
    names = [str(place) for place in range(len(factors))]

    def price(switches: Sequence[Switch]) -> JobPrice:
        step_s = 1.0
        for each in switches:
            step_s *= factors[int(each.name)]
        return a_price(step_s)

    advice = advise_by(price, [a_switch(name) for name in names], [])
    assert advice.joined.step_s <= 1.0
    assert all(factors[int(name)] <= 1 - LEAST_GAIN for name in advice.together)
    assert len(advice.together) == min(4, sum(factor <= 1 - LEAST_GAIN for factor in factors))
