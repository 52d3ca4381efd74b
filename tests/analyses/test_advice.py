"""Advice on a job whose prices are told: what pays, in which order, and what goes together."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.analyses.advice import Pricing, Switch, advise_by
from recsmith.analyses.aims import Aim, JobPrice, read_budget, read_prices
from recsmith.analyses.paying import LEAST_GAIN
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
    assert [each.ties for each in advice.switches] == [("dear",), ()]


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
    assert advice.verdict.startswith("no change saves more")


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


def test_objectives_and_limits_decide_what_is_saved():
    before, after = a_price(10.0, memory=1000), a_price(12.0, memory=400, samples=200)
    assert Aim(objective="memory").gain(before, after) == pytest.approx(0.6)
    assert Aim(objective="devices").gain(before, after) == pytest.approx(0.4)
    priced_at = [replace(each, dollars_per_hour=dollars) for each, dollars in ((before, 1.0), (after, 2.0))]
    aim = Aim(objective="cost", prices={"x": 1.0, "y": 2.0}, budget=3.0)
    assert aim.gain(*priced_at) == pytest.approx(-0.2)
    assert aim.over(replace(priced_at[1], devices=2)) == "2 devices cost $4.00/h, over the budget of $3.00/h"
    assert not aim.over(priced_at[1])


def test_what_alone_is_over_a_limit_is_joined_where_others_keep_it():
    prices = {"": a_price(10.0), "a": a_price(9.0), "b": a_price(13.0, samples=200), "a+b": a_price(10.5, samples=200)}
    advice = advise_by(
        priced(prices), [a_switch("a"), a_switch("b")], [], aim=Aim(objective="devices", step_under_s=11.0)
    )  # fmt: skip
    assert {each.switch.name: each.verdict for each in advice.switches} == {"a": "pays", "b": "cannot"}
    assert advice.together == ("a", "b")


def test_one_choice_of_a_kind_is_made():
    prices = {"": a_price(10.0), "a": a_price(6.0), "b": a_price(8.0), "a+b": a_price(5.0)}
    some = [replace(a_switch(name), of="devices") for name in "ab"]
    assert advise_by(priced(prices), some, []).together == ("a",)


def test_prices_are_dollars_an_hour():
    assert read_prices(["h100=2.99/h", "A100-80=$1/h"]) == {"h100": 2.99, "a100-80": 1.0}
    assert read_budget("$40/h") == 40.0
    for text in ("h100=2.99", "h100=2.99EUR/h", "h100=-1/h", "2.99/h"):
        with pytest.raises(UsageError, match=r"prices are dollars an hour of a device, such as h100=2[.]99/h"):
            read_prices([text])
    with pytest.raises(UsageError, match="a second or an empty price of 'h100'"):
        read_prices(["h100=2/h", "h100=3/h"])
    with pytest.raises(UsageError, match="is no budget; it is dollars an hour"):
        read_budget("40 EUR")


def test_money_that_nobody_named_is_refused():
    with pytest.raises(UsageError, match="the objective cost needs what a device costs"):
        Aim(objective="cost")
    with pytest.raises(UsageError, match="the job's devices are 'h100', and prices are of h200; add --price h100="):
        Aim(prices={"h200": 1.0}).price_of("h100")


def test_a_miss_within_the_error_is_told_with_its_figures():
    prices = {"": a_price(10.0), "a": a_price(8.1), "b": a_price(7.0, samples=50), "a+b": a_price(6.0, samples=50)}
    aim = Aim(step_under_s=8.0)
    advice = advise_by(priced(prices), [a_switch("a"), a_switch("b")], [], aim=aim)
    found = {each.switch.name: each for each in advice.switches}
    assert found["a"].verdict == "pays"
    assert aim.close(prices["a"]).endswith("over the 8 s that a step may take by 1.2%, and a step may be off by 10%")
    assert found["b"].why == (
        "a step of 7 s keeps the 8 s that it may take, and takes 40.0% more of the device time of a sample"
    )
    assert advice.together == ("a", "b")  # the second for the limit, at 6 s
    assert advice.verdict == (
        "a step takes 10 s, over the 8 s that a step may take, as the job is; a and b: a step of 6 s keeps the 8 s "
        "that it may take"
    )


def test_a_switch_is_compared_with_what_it_is_beside():
    prices = {"": a_price(10.0), "plan": a_price(7.0), "groups": a_price(7.5), "plan+groups": a_price(7.5)}
    advice = advise_by(
        priced(prices), [a_switch("plan"), a_switch("groups")], [],
        beside=lambda switch: prices["plan"] if switch.name == "groups" else None,
    )  # fmt: skip
    assert [(each.switch.name, each.verdict) for each in advice.switches] == [("plan", "pays"), ("groups", "no")]
    assert advice.switches[1].why == "takes 7.1% more of the device time of a sample, beyond a new plan"
    assert advice.together == ("plan",)


@given(st.floats(0.01, 3.0), st.floats(0.0, 0.5), st.floats(0.0, 0.5))
def test_an_interval_is_as_wide_as_either_price_asks(step_s: float, one: float, other: float):
    prices = {"": a_price(1.0, apart=one), "a": a_price(step_s, apart=other)}
    (advised,) = advise_by(priced(prices), [a_switch("a")], []).switches
    assert advised.gain_error >= max(one, other)


def test_what_takes_many_times_as_much_is_not_told_in_percent():
    (advised,) = advise_by(priced({"": a_price(1.0), "a": a_price(18.5)}), [a_switch("a")], []).switches
    assert advised.why == "takes 18.5 times the device time of a sample"
