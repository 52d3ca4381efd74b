"""A search of a real job: choices move on held-out samples alone, it goes on exactly, and samples rebuild."""

import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.systems import needing, needs_systems, of_system
from training.test_jobs import EVERY, STEPS, a_run, data, losses
from training.unsharded import trained_unsharded

from recsmith.embeddings import CompressionRule
from recsmith.errors import UsageError
from recsmith.searching import PartChoice, PartChoices, SearchSpace, SpaceOptions
from recsmith.training import Run, RunData, RunModel, load_run, save_run, train

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
    needs_systems("search"),
]
MODEL = RunModel(embedding_dim=8, bottom=(8,), top=(16, 16))
HASHED = (CompressionRule(method="hash"),)
REQUEST: dict[str, Any] = {"under": 0.7, "price": "bytes"}
SPACE = SpaceOptions(rows=(0.25,), layers=(0.5,), skip=True)


def searched_run(folder: Path, **words: Any) -> Run:
    return a_run(folder / "base", model=MODEL, **words)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path]:
    """A network that was trained, and a search that goes on from its second checkpoint; what that found."""
    from recsmith.training.systems.search.searching import NetworkSearch, prepare, search

    folder = tmp_path_factory.mktemp("search")
    prepared = prepare(searched_run(folder, ranks=1), NetworkSearch(**REQUEST, options=SPACE), str(folder))
    train(prepared.network)
    shutil.copytree(folder / "network", folder / "whole")
    shutil.rmtree(folder / "network" / "model")
    shutil.rmtree(folder / "network" / "checkpoints" / f"step-{STEPS:08}")
    return prepared, search(prepared), folder


def test_a_search_that_goes_on_is_the_one_that_was_not_ended(found: tuple[Any, Any, Path]) -> None:
    from recsmith.training.systems.search.network import read_scores

    prepared, _, folder = found
    scores = [read_scores(str(folder / name), prepared.space) for name in ("network", "whole")]
    assert np.isfinite(scores[0][:, :2]).all()
    np.testing.assert_array_equal(scores[0], scores[1])
    assert np.ptp(scores[0][0][:2]) > 0
    assert losses(folder / "network") == losses(folder / "whole")
    first = Path("checkpoints", f"step-{EVERY:08}", "progress.json")
    written = [(folder / name / first).stat().st_mtime_ns for name in ("network", "whole")]
    assert written[0] == written[1], "it did not begin anew"


def test_samples_keep_the_ceiling_and_retrain_from_their_files_bit_for_bit(found: tuple[Any, Any, Path]) -> None:
    prepared, result, folder = found
    assert result.samples
    for sample in result.samples:
        assert sample.price <= 0.7 * result.space.whole
        assert sample.replanned.price == pytest.approx(sample.price, rel=0.05)
        assert 0.3 < sample.network_auc < 1
        run = load_run(prepared.run, sample.settings)
        save_run(run, str(folder / "sample.json"))
        assert load_run(str(folder / "sample.json")) == run
    one, other = (trained_unsharded(load_run(made), EVERY) for made in (run, str(folder / "sample.json")))
    assert np.isfinite(one[1]).all()
    assert one[1] == other[1]
    weights = [task.state_dict() for task in (one[0], other[0])]
    assert weights[0].keys() == weights[1].keys()
    for name, value in weights[0].items():
        assert value.isfinite().all()
        assert value.equal(weights[1][name]), name


def test_a_search_of_another_space_or_coefficient_is_refused(found: tuple[Any, Any, Path]) -> None:
    from recsmith.training.systems.search.searching import NetworkSearch, prepare, search

    prepared, _, folder = found
    changes: list[tuple[dict[str, Any], str]] = [
        ({"options": SpaceOptions()}, "began with another space: choices or prices of 'a' differ"),
        ({"options": SPACE, "coefficient": 0.5}, "began with coefficient 0.1 .0: none., and now it is 0.5"),
    ]
    for change, said in changes:
        with pytest.raises(UsageError, match=said):
            search(prepare(prepared.run, NetworkSearch(**REQUEST, **change), str(folder)))


@pytest.mark.soak
def test_ranks_move_their_choices_alike(found: tuple[Any, Any, Path], tmp_path: Path) -> None:
    from recsmith.training.systems.search.network import read_scores

    prepared, _, _ = found
    train(replace(prepared.network, ranks=2, output=str(tmp_path)))
    scores = read_scores(str(tmp_path), prepared.space)
    assert np.isfinite(scores[:, 0]).all()
    assert np.ptp(scores[0][:2]) > 0


def masked_and_narrow() -> tuple[Any, Any, tuple[Any, ...]]:
    """Tasks of one network evaluated as its cheapest sample, and of that sample, whose weights are its prefixes."""
    import torch

    from recsmith.files import encode
    from recsmith.searching.samples import settings_of
    from recsmith.training.job.models import build_task
    from recsmith.training.sources import open_data
    from recsmith.training.systems.search.tables import pick

    sizes = {"bottom": (8,), "top": (16, 16)}
    options = (PartChoice(width=4, rows=0.25), PartChoice(width=4), PartChoice(width=8, rows=0.25), PartChoice(width=8))
    layers = (
        PartChoices(name="bottom.0", options=(PartChoice(width=4), PartChoice(width=8))),
        PartChoices(name="top.0", options=(PartChoice(width=8), PartChoice(width=16))),
        PartChoices(name="top.1", options=(PartChoice(width=0), PartChoice(width=8), PartChoice(width=16))),
    )
    space = SearchSpace(tables=tuple(PartChoices(name=n, options=options) for n in "ab"), layers=layers)
    picks = (1, 0, 0, 0, 0)
    schema = open_data(data(0, 100), "data").schema
    network = build_task(
        replace(MODEL, table_module={"name": "searched", "space": encode(space)}), schema, 0, tables_on="cpu"
    ).eval()
    run = load_run(Run(data=RunData(train="x"), output="y", model=MODEL), settings_of(space, picks, sizes))
    narrow = build_task(run.model, schema, 1, tables_on="cpu").eval()
    pick(network, picks)
    wide = {name.replace(".layer.", "."): value for name, value in network.state_dict().items()}
    names = {"a@truncated": "a", "b@truncated": f"b@rows{round(503 * 0.25)}"}
    with torch.no_grad():
        for name, value in narrow.state_dict().items():
            source = name
            for mine, other in names.items():
                source = source.replace(f".{mine}.", f".{other}.")
            source = source.replace(".a.weight", ".a@rows100.weight")
            found = wide[source]
            value.copy_(found[tuple(slice(0, size) for size in value.shape)])
    return network, narrow, (schema, space, picks)


def test_a_masked_network_equals_the_sample_that_is_truly_narrow() -> None:
    import torch

    from recsmith.training.batches import as_tensors
    from recsmith.training.sources import open_data
    from recsmith.training.tables.plain import features_of

    network, narrow, _ = masked_and_narrow()
    with open_data(data(0, 100), "data").batches(
        rank=0, world_size=1, batch_size=100, seed=0, shuffle=False, drop_last=False
    ) as batches:
        batch = next(iter(batches))
    with torch.no_grad():
        one = network(as_tensors(batch, features_of(network)))[1][1]
        other = narrow(as_tensors(batch, features_of(narrow)))[1][1]
    assert one.std() > 0
    torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_draws_at_no_temperature_are_one_choice_each_in_shares_of_the_softmax() -> None:
    import torch

    from recsmith.training.systems.search.tables import Draws

    options = (PartChoice(width=4, price=1.0), PartChoice(width=8, price=3.0), PartChoice(width=12, price=4.0))
    draws = Draws([PartChoices(name="t", options=options), PartChoices(name="u", options=options[:2])], price=7.0)
    with torch.no_grad():
        draws.theta.copy_(torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.5, 9.0]]))
    draws.temperature = 1e-4
    torch.manual_seed(0)
    drawn = draws(4000)
    assert drawn.sum(dim=2).allclose(torch.ones(4000, 2))
    assert not bool(drawn[:, 1, 2].any()), "a choice that a part does not have is never drawn"
    assert len({row.argmax().item() for row in drawn[:, 0]}) == 3
    shares = drawn.mean(dim=0)
    torch.testing.assert_close(shares, draws.scores().softmax(dim=1), atol=0.03, rtol=0)
    assert draws.eval()(5)[0].argmax(dim=1).tolist() == [1, 1]


def test_held_out_samples_are_a_fifth_and_stay_so() -> None:
    from recsmith.training.systems.search.step import held_out

    ids = np.arange(20_000)
    assert abs(held_out(ids).mean() - 0.2) < 0.01
    assert (held_out(ids[::-1].copy()) == held_out(ids)[::-1]).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data": RunData(train=data(0, 20_000))}, "names no data.test"),
        ({"data": RunData(train=data(0, 200), test=data(200, 50), batch_size=48), "steps": 3}, "fewer than a batch"),
        needing("second_order", {"pipeline": "dance"}, "pipeline is dance"),
        *of_system("stored", "", lambda _: [({"model": replace(MODEL, compression=HASHED)}, "already compressed")]),
        ({"model": replace(MODEL, name="deepfm")}, "has no layers"),
    ],
)
def test_runs_that_cannot_be_searched_are_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    from recsmith.training.systems.search.searching import NetworkSearch, prepare

    run = replace(searched_run(tmp_path), **change)
    with pytest.raises(UsageError, match=said):
        prepare(run, NetworkSearch(**REQUEST, options=SPACE), str(tmp_path / "found"))
    assert not (tmp_path / "found").exists()


def test_tables_of_histories_have_choices_of_columns_and_rows(tmp_path: Path) -> None:
    from training.models import test_model_jobs as histories

    from recsmith.training.systems.search.searching import NetworkSearch, prepare, search

    base = histories.a_run(tmp_path / "base", "sasrec", ranks=2)
    options = SpaceOptions(widths=(4,), rows=(0.5,))
    prepared = prepare(base, NetworkSearch(**REQUEST, options=options), str(tmp_path))
    assert [(each.name, len(each.options)) for each in prepared.space.tables] == [("target", 4)]
    assert prepared.space.layers == ()
    made = search(prepared)
    assert made.samples
    sample = min(made.samples, key=lambda each: each.price)
    assert sample.price <= 0.7 * prepared.space.whole
    assert train(replace(base, output=str(tmp_path / "sample")), settings=sample.settings)["complete"]
