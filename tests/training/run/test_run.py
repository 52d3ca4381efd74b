"""Runs in files: strict, each wrong word with the nearest known one, and `--set` over them."""

import json
from pathlib import Path

import pytest
from support.systems import needing, needs_systems

from recsmith.errors import CorruptFile, UsageError
from recsmith.plans import Placement
from recsmith.training import Run, RunData, RunModel, RunTable, load_run, run_from_raw, run_to_raw, save_run
from recsmith.training.job.plan_rules import why_not_loadable  # pyright: ignore[reportPrivateUsage]
from recsmith.training.run.tables import tables_of

SMALL = Run(data=RunData(train="clicks.tsv", batch_size=64), output="runs/small")


def test_a_run_survives_its_file(tmp_path: Path):
    save_run(SMALL, tmp_path / "run.json")
    assert load_run(tmp_path / "run.json") == SMALL
    assert run_from_raw(run_to_raw(SMALL), "it") == load_run(SMALL) == SMALL
    (tmp_path / "run.yaml").write_text(
        "schema: recsmith/run/1\noutput: runs/small\ndata:\n  train: clicks.tsv\n  batch_size: 64\n"
    )
    assert load_run(tmp_path / "run.yaml") == SMALL


@pytest.mark.parametrize(
    ("setting", "field", "value"),
    [
        ("data.batch_size=128", lambda run: run.data.batch_size, 128),
        ("optimizers.dense.learning_rate=1e-2", lambda run: run.optimizers.dense.learning_rate, 0.01),
        ("checkpoint=null", lambda run: run.checkpoint, None),
        ("model.top=[8, 4]", lambda run: run.model.top, (8, 4)),
        ("data.train={format: movielens, path: a}", lambda run: run.data.train["format"], "movielens"),
    ],
)
def test_settings_replace_values(setting: str, field, value):  # type: ignore[no-untyped-def]
    assert field(load_run(SMALL, (setting,))) == value


def test_what_a_setting_got_wrong_is_told_with_it_and_what_a_file_did_with_its_line(tmp_path: Path):
    file = tmp_path / "run.yaml"
    file.write_text("schema: recsmith/run/1\noutput: out\ndata:\n  train: x\n  batch_sise: 64\n")
    wrong = r"data.batch_sise is not a known field; did you mean 'batch_size'\?"
    for settings, said in (
        ((), rf"'.*run.yaml': {wrong} \(line 5\)"),
        (("ranks=2", "data.batch_sise=1"), rf"--set data.batch_sise=1: {wrong}"),
        (("stepps=1",), rf"'.*run.yaml': 2 fields are wrong: {wrong} \(line 5\); stepps .* \(--set stepps=1\)"),
        (("steps=[1",), r"--set steps=\[1 is not strict YAML: .*'\]'"),
    ):
        with pytest.raises(CorruptFile, match=f"^{said}$"):
            load_run(str(file), settings)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("data.batch_sise=1", "did you mean 'batch_size'"),
        ("optimizer.dense.name=sgd", "did you mean 'optimizers'"),
        ("begin_from=x", r"begin_from is not a known field; known: array, [a-z_, ]*, watchers"),
        ("data.batch_size=0", "must be at least 1"),
        ("model.embedding_dim=6", "multiple of 4"),
        ("model.name=dlmr", "known: dlrm"),
        (f"model.bottom={[8] * 1001}", "model.bottom has more than 1,000 layers; name fewer"),
        (f"ranks={10**15}", "ranks is 1,000,000,000,000,000; it must be at most 65,536"),
        (f"data.epochs={10**18}", "data.epochs is 1,000,000,000,000,000,000; it must be at most 1,048,576"),
        (f"steps={10**18}", "steps is .*; it must be at most 1,099,511,627,776"),
        (f"seed={2**64}", "seed is .*; it must be at most"),
        (f"data.batch_size={10**10}", "data.batch_size is .*; it must be at most 2,147,483,648"),
        (f"data.feed={10**9}", "data.feed is 1,000,000,000; it must be at most 1,024"),
        (f"model.embedding_dim={10**18}", "at most 1,048,576"),
        (f"model.bottom=[{10**9}]", r"model.bottom is .*; it must be at most 1,048,576"),
        needing("narrow", f"model.narrow={{cycles: {10**9}}}", "model.narrow.cycles is .*; it must be at most 10,000"),
        needing("remote", f"remote={{servers: {10**9}}}", "remote.servers is .*; it must be at most 1,024"),
        needing("remote", f"remote={{timeout_s: {10**18}}}", r"remote.timeout_s is 1e\+18; .* at most 1e\+06"),
        needing("watch", f"watch={{ids: {10**9}}}", "watch.ids is [0-9,]*; it must be at most 1,048,576$"),
        (f"checkpoint.every={10**18}", "checkpoint.every is .*; it must be at most"),
        ("model.cross_layers=1001", "model.cross_layers has more than 1,000 layers"),
        ("optimizers={warmup_steps: 10, decay_start: 5}", "within the warm-up"),
        ("data.engine=ray", "add data.feed: auto"),
        ("data.ray_address='host0:6379'", "set data.engine: ray"),
        ("data.engine=rai", "'local' or 'ray'"),
        ("nonsense", "is not key=value"),
    ],
)
def test_wrong_words_are_named(setting: str, words: str):
    with pytest.raises((CorruptFile, UsageError), match=words):
        load_run(SMALL, (setting,))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        needing("watch", "watch:\n  ids: 64\n  every: 0", "watch.every is 0; it must be at least 1 (line 8)"),
        needing("watch", "watch: {evry: 3}", "watch.evry is not a known field; did you mean 'every'? (line 6)"),
        needing("watch", "watch: true", "watch is true: input should be a valid string, or an object (line 6)"),
        ("comms:\n  dens: 1%", "comms.dens is not a known field; known: backward, forward (line 7)"),
        needing("thresholds", "comms:\n  dense: 1%", "comms.dense is a setting of thresholded; write comms: {name: "
                "thresholded, dense: ...} (line 7)"),
        needing("tiers", "rows:\n  name: tired", "rows: no row store is called 'tired'; did you mean 'tiered'?; or "
                "give module:Class (line 7)"),
    ],
)  # fmt: skip
def test_one_sentence_tells_the_field_and_the_line_where_it_stands(tmp_path: Path, lines: str, said: str):
    file = tmp_path / "run.yaml"
    file.write_text(f"schema: recsmith/run/1\noutput: out\ndata:\n  train: x.yaml\n  batch_size: 8\n{lines}\n")
    with pytest.raises(CorruptFile) as refused:
        load_run(file)
    assert str(refused.value) == f"'{file}': {said}"


def test_a_global_batch_is_shared_evenly_or_refused():
    data = RunData(train="x", global_batch_size=240)
    assert [data.local_batch_size(ranks) for ranks in (1, 2, 3)] == [240, 120, 80]
    with pytest.raises(UsageError, match="multiple of 7"):
        data.local_batch_size(7)


@pytest.mark.parametrize("name", ["", "user.id"])
def test_a_table_has_a_name_that_a_part_of_a_model_can_have(name: str):
    from recsmith.data import DataFeature, DataSchema

    schema = DataSchema(features=(DataFeature(name=name, num_embeddings=10),), dense=(), labels=("label",))
    named = RunModel(tables=(RunTable(name=name, num_embeddings=10, features=(name,)),))
    for model in (RunModel(), named):
        with pytest.raises(UsageError, match="'user.id' cannot be the name" if name else "has an empty name"):
            tables_of(model, schema)


def test_tables_are_the_features_or_those_named():
    from recsmith.data import DataFeature, DataSchema

    features = (DataFeature(name="a", num_embeddings=10), DataFeature(name="b", num_embeddings=20))
    schema = DataSchema(features=features, dense=(), labels=("label",))
    assert [(t.name, t.num_embeddings, t.features) for t in tables_of(RunModel(), schema)] == [
        ("a", 10, ("a",)), ("b", 20, ("b",)),
    ]  # fmt: skip
    shared = RunTable(name="both", num_embeddings=20, features=("a", "b"))
    assert tables_of(RunModel(tables=(shared,)), schema)[0].embedding_dim == 16
    for table, words in (
        (RunTable(name="c", num_embeddings=9), "feature 'c', which the data does not have"),
        (RunTable(name="b", num_embeddings=19), "as many rows"),
    ):
        with pytest.raises(UsageError, match=words):
            tables_of(RunModel(tables=(table,)), schema)


def placed(kind: str, widths: tuple[int, ...] = ()) -> Placement:
    ranks = tuple(range(max(1, len(widths))))
    return Placement(table="t", sharding_type=kind, compute_kernel="fused", ranks=ranks, widths=widths)


@pytest.mark.parametrize(
    ("old", "new", "optimizer", "loads"),
    [
        (placed("table_wise"), placed("row_wise"), "rowwise_adagrad", True),
        (placed("column_wise", (8, 8)), placed("row_wise"), "adagrad", True),
        (placed("column_wise", (8, 8)), placed("row_wise"), "rowwise_adagrad", False),
        (placed("data_parallel"), placed("row_wise"), "sgd", False),
        (placed("data_parallel"), placed("data_parallel"), "adagrad", True),
    ],
)
def test_which_checkpoints_load_under_another_plan(old: Placement, new: Placement, optimizer: str, loads: bool):
    assert (why_not_loadable(old, new, 16, optimizer) is None) == loads


def test_the_file_of_a_run_names_what_it_does_not_say(tmp_path: Path):
    (tmp_path / "run.json").write_text(json.dumps({"schema": "recsmith/run/1", "output": "x"}))
    with pytest.raises(CorruptFile, match="data is missing"):
        load_run(tmp_path / "run.json")


@needs_systems("periods")
@pytest.mark.parametrize("there", [True, False])
def test_keys_are_there_with_their_systems(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from recsmith._types import noun
    from recsmith.files import decode
    from recsmith.reports.docstrings import meanings
    from recsmith.training import Periods
    from recsmith.training.listed import DataKeys
    from recsmith.training.seams import keys

    mine = [each for each in keys.systems() if there and each.key == "data.periods"]
    monkeypatch.setattr(keys, "systems", lambda: tuple(mine))

    @noun
    @keys.keys_of_systems("data.")
    class Data(DataKeys):
        """Of a test. path: where samples are."""

        path: str

    assert decode(Data, {"path": "x"}, "run.json").periods is None
    assert list(meanings(Data)) == (["path", "periods"] if there else ["path"])
    raw = {"path": "x", "periods": {"samples": 10}}
    if there:
        assert decode(Data, raw, "run.json").periods == Periods(samples=10)
    else:
        with pytest.raises(CorruptFile, match="periods is not a known field; known: path"):
            decode(Data, raw, "run.json")
