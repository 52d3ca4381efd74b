"""Files of learned cost models: what is written is read, and nothing else is."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import Case, table, workload
from support.learned import card, tensors, write_model
from support.learned_cases import piece_of

from recsmith.bounds import lower_bound
from recsmith.clusters import load_cluster
from recsmith.costs import cost_model
from recsmith.costs.neural.files import card_from_raw, find_model, load_model, save_model
from recsmith.costs.neural.inputs import OPTIMIZERS, inputs_of, work_of
from recsmith.costs.pricing import group_seconds, one_device
from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.hardware import Case as HardwareCase
from recsmith.hardware import load_hardware
from recsmith.problems import Space
from recsmith.workloads import AccessProfile


@pytest.mark.parametrize("variant", ["convex", "corrected", "monotone", "linear", "free"])
def test_what_is_written_is_read(tmp_path: Path, variant: Any) -> None:
    path = tmp_path / "m.safetensors"
    write_model(path, variant)
    weights, found = load_model(path)
    assert found == card(variant=variant)
    assert weights.base == pytest.approx(tensors(variant)["base"], rel=1e-6)
    beside = json.loads((tmp_path / "m.json").read_text())
    assert beside["schema"] == "recsmith/cost-model-card/1"
    assert card_from_raw(beside, "m.json") == found
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.json", "m.safetensors"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"base": np.full((3, 7), np.nan)}, "tensor 'base' holds numbers that are not finite"),
        ({"linear": -np.ones((2, 4))}, "tensor 'linear' holds numbers below 0"),
        ({"offsets": -np.ones((2, 2))}, "tensor 'offsets' holds numbers below 0"),
        ({"launch": np.ones(3)}, r"tensor 'launch' has shape \(3,\), not \(2,\)"),
        ({"hinges": np.ones((2, 2, 9))}, r"tensor 'hinges' has shape \(2, 2, 9\), not \(2, 2, 4\)"),
        ({"more": np.ones(3)}, "tensor 'more' is unknown"),
        ({"spread": np.zeros(16)}, "tensor 'spread' holds numbers that are not above 0"),
    ],
)
def test_weights_that_no_training_writes_are_refused(tmp_path: Path, fields: Any, words: str) -> None:
    path = tmp_path / "m.safetensors"
    save_model(str(path), tensors(**fields), card())
    with pytest.raises(CorruptFile, match=words):
        load_model(path)


def test_a_corrected_model_of_before_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path, made = tmp_path / "m.safetensors", tensors("corrected")
    made |= {"base": made["base"][:, :15], "extra": made["extra"][:, 0]}
    save_model(str(path), made, card(variant="corrected"))
    with pytest.raises(CorruptFile, match="the 15 figures of work of an earlier version, not 16; train it again with"):
        load_model(path)


def with_adam() -> dict[str, Any]:
    """A model that has learned from Adam: one input more."""
    made = tensors()
    more = {"centre": np.array([0.1]), "spread": np.array([0.3])}
    made |= {name: np.concatenate([made[name], added]) for name, added in more.items()}
    return made | {"weight0": np.hstack([made["weight0"], np.ones((len(made["weight0"]), 1))])}


def test_models_have_the_inputs_that_they_learned_from(tmp_path: Path) -> None:
    """One of before prices every piece as it did, to the last bit; one of Adam knows it, and its card may say so."""
    save_model(str(tmp_path / "now.safetensors"), with_adam(), card(optimizers=OPTIMIZERS))
    write_model(tmp_path / "before.safetensors")
    now, before = (load_model(tmp_path / f"{name}.safetensors")[0] for name in ("now", "before"))
    sgd, adam = (piece_of(80.0, 16.0, 40.0, 1000.0, 128.0)._replace(optimizer=np.array([i])) for i in (0, 3))
    assert (before.terms(work_of(sgd), inputs_of(sgd)) == before.terms(work_of(sgd), inputs_of(sgd)[:, :16])).all()
    assert (now.terms(work_of(adam), inputs_of(adam)) != now.terms(work_of(sgd), inputs_of(sgd))).any()
    save_model(str(tmp_path / "odd.safetensors"), tensors(), card(optimizers=OPTIMIZERS))
    with pytest.raises(CorruptFile, match="its card has optimizer 'adam', its weights have no input of it"):
        load_model(tmp_path / "odd.safetensors")


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    path, some = tmp_path / "m.safetensors", tensors()
    del some["weight1"]
    save_model(str(path), some, card())
    with pytest.raises(CorruptFile, match="tensor 'bias1' has shape"):
        load_model(path)


@given(st.integers(0, 10**6), st.integers(0, 255))
def test_a_damaged_file_is_refused_or_read_as_some_model(tmp_path_factory: Any, place: int, byte: int) -> None:
    path = tmp_path_factory.mktemp("damaged") / "m.safetensors"
    write_model(path)
    whole = bytearray(path.read_bytes())
    whole[place % len(whole)] = byte
    path.write_bytes(whole)
    try:
        weights, _ = load_model(path)
    except UsageError:
        return
    assert np.isfinite(weights.base).all()


@pytest.mark.parametrize("kept", [0, 7, 100, -1])
def test_a_cut_file_is_refused(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "m.safetensors"
    write_model(path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CorruptFile, match="no whole safetensors file"):
        load_model(path)


def test_a_file_without_a_card_or_with_another_schema_is_refused(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    path, some = tmp_path / "m.safetensors", {"x": np.ones(2, dtype=np.float32)}
    save_file(some, path)
    with pytest.raises(CorruptFile, match="holds no card"):
        load_model(path)
    save_file(some, path, metadata={"card": '{"schema": "recsmith/cost-model-card/9"}'})
    with pytest.raises(CorruptFile, match="expected `recsmith/cost-model-card/1`"):
        load_model(path)


def test_a_card_of_unknown_words_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    write_model(path, optimizers=("sgd", "sdg"))
    with pytest.raises(CorruptFile, match="'sdg' is none of sgd, adagrad, rowwise_adagrad"):
        load_model(path)


def test_names_that_lead_nowhere_say_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no learned cost model is called 'cpuu'.*recsmith learn cost"):
        cost_model("neural:cpuu")
    with pytest.raises(UsageError, match=r"cannot read '.*none\.safetensors': No such file"):
        cost_model(f"neural:{tmp_path}/none.safetensors")
    (tmp_path / "a.safetensors").mkdir()
    with pytest.raises(UsageError, match=r"it is no file; give the path of a \.safetensors file"):
        cost_model(f"neural:{tmp_path}/a.safetensors")


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.safetensors"
    write_model(path)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RecSmithError, match="No space left on device; any file that was there is unchanged"):
        write_model(path, seed=1)
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.json", "m.safetensors"]


@pytest.mark.parametrize("name", ["cpu", "h100", "h200", "simulated-h100"])
def test_shipped_cards_stand_beside_their_weights(name: str):
    path = find_model(name)
    assert card_from_raw(json.loads(path.with_suffix(".json").read_text()), name) == load_model(path)[1]


@pytest.mark.filterwarnings("ignore:cost model neural")
@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_the_simulated_model_knows_that_tables_share_a_cache(count: int):
    """Tables of 40 MB, 160 ids a bag, nearly even: one fits the cache, two do not."""
    work = workload(
        *(table(f"t{i}", 78_125, 128, 160.0, access=AccessProfile(zipf=0.3)) for i in range(count)), batch_size=65_536
    )
    case = HardwareCase(seed=0, number=0, workload=work)
    measured = load_hardware("simulated:h100", "pools").measure(case)
    assert measured.forward_s is not None
    assert measured.backward_s is not None
    said = group_seconds(cost_model("neural:simulated-h100"), work, one_device(load_cluster("h100")))
    assert said.sum() == pytest.approx(measured.forward_s + measured.backward_s, rel=0.06)


@pytest.mark.filterwarnings("ignore:cost model neural")
def test_the_simulated_model_prices_plans_of_its_gpu_with_a_bound_and_says_what_it_is():
    case = Case(workload(table("a", 10**5, 64, 20.0), batch_size=4096), load_cluster("h100:8"), Space())
    with pytest.warns(
        UserWarning, match="neural:simulated-h100 was trained on simulated:h100.* no device was measured"
    ):
        model = cost_model("neural:simulated-h100")
    bound = lower_bound(model.compile(case.problem)).bound.value_s
    assert bound is not None
    assert bound > 0


def test_the_shipped_cpu_model_is_read_by_its_name_and_says_how_far_it_is_off():
    _, found = load_model(find_model("cpu"))
    assert (found.hardware, found.variant) == ("cpu", "convex")
    assert found.held_out.samples > 500
    assert found.held_out.median <= 0.05
    assert found.held_out.mean <= 0.08
    assert found.held_out.tau is not None
    assert found.held_out.tau >= 0.95
