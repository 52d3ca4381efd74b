"""Spaces, their prices on a cluster, and samples as settings of a run."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.amounts import seeds, some

from recsmith.clusters import load_cluster
from recsmith.embeddings.workloads import compress
from recsmith.errors import UsageError
from recsmith.searching import PartChoice, PartChoices, SearchSpace, SpaceOptions
from recsmith.searching.prices import Priced, check_pays, replanned, with_prices
from recsmith.searching.samples import drawn, frontier, picked, rules_of, settings_of, sizes_of
from recsmith.searching.space import make_space
from recsmith.training import Run, RunData, RunModel, load_run
from recsmith.workloads import Feature, Table, Workload

SIZES: dict[str, tuple[int, ...]] = {"bottom": (64, 64), "top": (64, 32)}
RUN = Run(data=RunData(train="x"), output="y", model=RunModel(bottom=SIZES["bottom"], top=SIZES["top"]))


def workload(tables: int = 12, seed: int = 3) -> Workload:
    rng = np.random.default_rng(seed)
    made = [
        Table(
            name=f"t{n}", num_embeddings=int(rng.integers(10_000, 5_000_000)), embedding_dim=int(rng.choice([32, 64])),
            features=(Feature(name=f"t{n}", pooling_factor=float(rng.integers(1, 20))),),
        )
        for n in range(tables)
    ]  # fmt: skip
    return Workload(batch_size=2048, optimizer="adagrad", tables=tuple(made))


def priced_space(unit: Any = "bytes", **words: Any) -> tuple[SearchSpace, Priced]:
    tables = workload()
    priced = Priced(tables, load_cluster("h100:8"), SIZES, {"bottom": 13, "top": 100}, {"bottom": 64, "top": 1})
    space = make_space(tables, SpaceOptions(**words), SIZES, 13)
    return with_prices(space, priced, unit, planner="size_greedy"), priced


def test_a_space_has_halves_of_widths_and_only_layers_that_can_be_left_out_are() -> None:
    space = make_space(workload(), SpaceOptions(layers=(0.5,), skip=True, rows=(0.1,)), SIZES, 13)
    widest = {table.name: table.embedding_dim for table in workload().tables}
    for part in space.tables:
        assert {choice.width for choice in part.options} == {w for w in (4, 8, 16, 32, 64) if w <= widest[part.name]}
        assert part.options[part.largest] == PartChoice(width=widest[part.name])
    found = {part.name: [choice.width for choice in part.options] for part in space.layers}
    assert found == {"bottom.0": [0, 32, 64], "bottom.1": [0, 32, 64], "top.0": [32, 64], "top.1": [16, 32]}


def test_bytes_add_up_to_those_of_the_sample() -> None:
    space, priced = priced_space(rows=(0.1, 0.5), layers=(0.5,))
    rng = np.random.default_rng(0)
    for _ in range(4):
        picks = tuple(int(rng.integers(len(part.options))) for part in space.parts)
        told = replanned(space, picks, priced, planner="size_greedy")
        of_tables = sum(choice.price for name, choice in picked(space, picks).items() if "." not in name)
        assert of_tables == compress(priced.workload, rules_of(space, picks)).workload.weight_bytes
        assert space.price(picks) == pytest.approx(told.price, rel=1e-3)


def test_seconds_of_samples_that_choose_alike_are_those_of_their_plan() -> None:
    space, priced = priced_space("step", widths=(8, 16, 32), tables="t*")
    uniform = tuple(0 for _ in space.parts)
    assert space.price(uniform) == pytest.approx(replanned(space, uniform, priced, planner="size_greedy").step_s)
    assert space.price(space.cheapest) < space.whole


def test_seconds_of_random_samples_are_within_a_quarter_of_their_plan() -> None:
    space, priced = priced_space("step", layers=(0.25, 0.5))
    rng, asked = np.random.default_rng(1), 0
    for _ in seeds(8, 20):
        picks = tuple(int(rng.integers(len(part.options))) for part in space.parts)
        ratio = space.price(picks) / replanned(space, picks, priced, planner="size_greedy").price
        assert 0.75 <= ratio <= 1.25
        asked += 1
    assert asked == some(8, 20)


@given(st.lists(st.floats(-3, 3), min_size=12, max_size=12), st.floats(0.3, 1.0))
def test_the_frontier_keeps_the_ceiling_and_no_sample_of_its_price_scores_more(
    scores: list[float], under: float
) -> None:
    options = tuple(PartChoice(width=w, price=float(w)) for w in (4, 8, 16, 32))
    space = SearchSpace(tables=tuple(PartChoices(name=n, options=options) for n in "abc"))
    told = np.array(scores).reshape(3, 4)

    def score(picks: Any) -> float:
        return sum(told[n, k] for n, k in enumerate(picks))

    found = frontier(space, told, under)
    assert found
    for picks in found:
        assert space.price(picks) <= under * space.whole * (1 + 1e-9)
        if picks != space.cheapest:
            cheaper = [p for p in np.ndindex(4, 4, 4) if space.price(p) <= space.price(picks)]
            assert score(picks) >= max(map(score, cheaper)) - 1e-9
    assert all(space.price(p) <= under * space.whole for p in drawn(space, told, under, 5, 0))


def test_without_a_price_the_best_sample_is_the_argmax() -> None:
    space, _ = priced_space()
    scores = np.random.default_rng(2).normal(size=(len(space.parts), 5))
    likeliest = tuple(int(np.argmax(scores[n, : len(part.options)])) for n, part in enumerate(space.parts))
    assert frontier(space, scores, 1.0)[0] == likeliest


def test_a_sample_is_settings_from_which_its_run_rebuilds() -> None:
    space, _ = priced_space(rows=(0.1,), layers=(0.5,), skip=True)
    picks = space.cheapest
    run = load_run(RUN, settings_of(space, picks, SIZES))
    assert run.model.compression == rules_of(space, picks)
    assert {"bottom": run.model.bottom, "top": run.model.top} == sizes_of(space, picks, SIZES)
    assert load_run(RUN, settings_of(space, space.largest, SIZES)) == RUN


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (SpaceOptions(tables="none"), "no table is called 'none'; give --tables a pattern of t0, t1, t2, t3, t4, ..."),
        (SpaceOptions(widths=(64,), tables="t1"), "1 table or layer of one choice each, such as 't1': 32, so there is"),
        (SpaceOptions(widths=(6,)), "6 columns wide, and kernels take multiples of 4, such as 4"),
        (SpaceOptions(rows=(1.5,)), "--rows has 1.5"),
    ],
)
def test_bad_spaces_are_one_sentence(options: SpaceOptions, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make_space(workload(), options, SIZES)


def test_pooled_tables_and_others_are_searched_apart() -> None:
    tables = workload()
    first = replace(tables.tables[0], pooling="none")
    mixed = replace(tables, tables=(first, *tables.tables[1:]))
    with pytest.raises(UsageError, match=r"table 't1' is pooled and 't0' is not; search one kind at a time"):
        make_space(mixed, SpaceOptions(), SIZES)
    assert [each.name for each in make_space(mixed, SpaceOptions(tables="t0"), SIZES).tables] == ["t0"]


def test_an_unreachable_price_says_what_can_be_reached() -> None:
    space, _ = priced_space(widths=(32,))
    least = space.price(space.cheapest) / space.whole
    with pytest.raises(UsageError, match=f"the cheapest one is {least:.1%}"):
        space.ceiling(0.01)


def test_a_search_that_saves_too_little_of_the_step_is_refused() -> None:
    space = SearchSpace(
        tables=(PartChoices(name="t", options=(PartChoice(width=4), PartChoice(width=8))),), unit="step"
    )
    with pytest.raises(UsageError, match=r"saves 1\.9% of the device time of a sample, less than the 2% from which on"):
        check_pays(space, 1.0, 0.981)
    with pytest.raises(UsageError, match=r"a step of 1\.1 s and the run 1 s, predicted, so it takes 10\.0% more of"):
        check_pays(space, 1.0, 1.1)
    check_pays(space, 1.0, 0.98)
    check_pays(replace(space, unit="bytes"), 1.0, 1.0)


def test_a_search_that_goes_on_has_the_same_space() -> None:
    space, _ = priced_space()
    other = replace(space, tables=(replace(space.tables[0], options=space.tables[0].options[1:]), *space.tables[1:]))
    space.check_same(space, "'found'")
    with pytest.raises(UsageError, match="of 't0' differ"):
        other.check_same(space, "'found'")
