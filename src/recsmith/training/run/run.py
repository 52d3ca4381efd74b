"""A training job as a value: what a run file says, with every default.

    Run(data=RunData(train="criteo/train.tsv.gz"), output="runs/first")

The data section is in data.py, that of optimizers in optimizers/settings.py. Runs are read from YAML or JSON, with
`--set key=value` applied on top. Nothing here imports torch. What a run does is in loop.py, from top to bottom.
"""

import re
from collections import Counter
from collections.abc import Generator
from dataclasses import field
from typing import Any, Literal, cast

from recsmith._components import NAME, parsed, setting_without_name, unknown
from recsmith._types import noun
from recsmith.errors import LARGEST_SEED, UsageError, check_rules, outside
from recsmith.files import (
    Raw,
    Source,
    check_schema,
    decode,
    decode_part,
    dump_json,
    encode,
    is_address,
    parse,
    path_of,
    read_text,
    shown_address,
    source_text,
    write_text,
)
from recsmith.files.settings import put_setting
from recsmith.training.collectives import KIND as COLLECTIVES
from recsmith.training.collectives.quantised import RunComms
from recsmith.training.listed import ModelKeys, RunKeys
from recsmith.training.losses.settings import RunTask, check_tasks
from recsmith.training.models import POOLED_MODELS, SEQUENCE_MODELS, TwoTowerSettings, model_settings, scores_candidates
from recsmith.training.optimizers.settings import RunOptimizers
from recsmith.training.run.bases import with_base
from recsmith.training.run.data import RunData
from recsmith.training.seams import ROWS, STEP, WATCHER
from recsmith.training.seams.keys import keys_of_systems
from recsmith.training.seams.registry import systems, use_systems
from recsmith.workloads.data_types import DataType
from recsmith.workloads.workload import IndexDedup

SCHEMA = "recsmith/run/1"
BUILT_IN = ("dlrm", "dlrm_dcn", "deepfm")  # models of torchrec.models
ACCUMULATED = 4  # batches in a step of pipeline `accumulated`, if the run gives no number
MOST_RANKS = 2**16  # ranks of a job; a plan for more would fill memory before it could be refused
MOST_UNITS = 2**20  # largest width of a layer, and most columns of a table
MOST_LAYERS = 1000  # layers in one part of a built-in model; a damaged file may name millions, each an object
MADE_HERE = ("auto", "torchrec")  # plans that are made by the job, not read from a file
GROUPS, LEARNERS = ("model", "optimizers", "metrics"), ("sparse", "dense")  # groups that may be null
OF_A_MODULE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")  # module:function
Component = str | dict[str, Any]  # a name or module:Class, or a mapping with `name` and settings


@noun
class RunTable:
    """An embedding table that the run names itself; features may share a table, and a feature may have several tables.

    name: unique among the tables. num_embeddings: number of rows. embedding_dim: number of columns; none: the model's
    embedding_dim. features: features of the data that it looks up; by default the feature of the table's own name.
    pooling: sum or mean pools the rows of a sample; none keeps the row of each id, for a model of yours that reads
    sequences (docs/models.md). data_type: data type of its weights.
    """

    name: str
    num_embeddings: int
    embedding_dim: int | None = None
    features: tuple[str, ...] = ()
    pooling: Literal["sum", "mean", "none"] = "sum"
    data_type: DataType = "fp32"


@noun
class TableStart:
    """Initial weights of some tables: drawn uniformly from -`reach` to `reach`.

    tables: a table's name, or a pattern such as 'item*'; the first entry that matches a table counts. reach: largest
    absolute value of a weight; tables without an entry have 1 / sqrt(rows).
    """

    tables: str
    reach: float

    def __post_init__(self) -> None:
        check_rules(
            None
            if 0 < self.reach < float("inf")
            else f"model.initial: reach of '{self.tables}' is {self.reach:g}; it must be above 0 and finite"
        )


@noun
@keys_of_systems("model.")
class RunModel(ModelKeys):
    """Which model is trained.

    name: dlrm, dlrm_dcn, deepfm (torchrec.models); hstu, sasrec, din, which read histories (docs/sequences.md); mmoe,
    ple, which learn several labels, two_tower (docs/models.md); wide_deep; or a function of yours, 'module:function'.
    embedding_dim: columns of every table that gives none of its own. bottom, top: layer sizes of the bottom and top
    MLP, without their last layers, whose sizes follow from embedding_dim and from the one label. cross_layers,
    cross_rank: number and rank of the cross layers of dlrm_dcn. hidden, factors: layer sizes of deepfm. tables: named
    tables, instead of one table for each feature of the data. arguments: arguments of models that take some, or of your
    function (docs/models.md). table_module: the module that pooled tables are built as: a component, or 'module:Class'
    of yours with its settings (docs/models.md). precision: data type of the dense layers' products; bf16 is autocast.
    index_dedup: whether a rank looks up each distinct id only once in tables that are not pooled, if the plan is made
    by the job; auto: if that is predicted to save time. loss: binary: binary cross entropy of each label; softmax:
    cross entropy of a sample's first candidate against all its candidates (docs/sequences.md). tasks: a loss for each
    label, instead of one loss for all of them (docs/models.md). initial: initial weights of some tables, by the tables'
    names.
    """

    name: str = "dlrm"
    embedding_dim: int = 16
    bottom: tuple[int, ...] = (64,)
    top: tuple[int, ...] = (64, 32)
    cross_layers: int = 3  # as in MLPerf's DLRM-DCN
    cross_rank: int = 64  # trade-off: MLPerf uses 512; small models need less
    hidden: int = 64
    factors: int = 16
    tables: tuple[RunTable, ...] = ()
    arguments: dict[str, Any] | None = None
    table_module: str | dict[str, Any] | None = None
    precision: Literal["fp32", "bf16"] = "fp32"
    index_dedup: IndexDedup = "off"
    loss: Literal["binary", "softmax"] = "binary"
    tasks: tuple[RunTask, ...] = ()
    initial: tuple[TableStart, ...] = ()

    def __post_init__(self) -> None:
        names = (*BUILT_IN, *SEQUENCE_MODELS, *POOLED_MODELS)
        known = self.name in names or ":" in self.name
        twin = next((name for name, count in Counter(table.name for table in self.tables).items() if count > 1), None)
        deep = next((name for name in ("bottom", "top") if len(getattr(self, name)) > MOST_LAYERS), None)
        if self.cross_layers > MOST_LAYERS:
            deep = deep or "cross_layers"
        check_rules(
            None if known else f"model.name is '{self.name}'; known: {', '.join(names)}, or 'package.module:function'",
            None
            if 0 < self.embedding_dim <= MOST_UNITS and self.embedding_dim % 4 == 0
            else f"model.embedding_dim is {self.embedding_dim}; it must be a positive multiple of 4, "
            f"at most {MOST_UNITS:,}",
            *(
                outside(f"model.{name}", each, 1, MOST_UNITS)
                for name in ("bottom", "top", "cross_layers", "cross_rank", "hidden", "factors")
                for each in _listed(getattr(self, name))
            ),
            None if twin is None else f"model.tables names '{twin}' twice; names of tables are unique",
            None if deep is None else f"model.{deep} has more than {MOST_LAYERS:,} layers; name fewer",
        )
        check_tasks(self.tasks, self.loss)
        settings = model_settings(self.name, self.arguments)  # raises an error that names a wrong argument
        if self.loss == "softmax" and ":" not in self.name and not scores_candidates(settings):
            raise UsageError(
                f"model.loss is softmax, which compares candidates of a sample, and {self.name} scores one; take "
                "sasrec, two_tower, or hstu with model.arguments.score: dot"
            )
        if self.loss != "softmax" and isinstance(settings, TwoTowerSettings):
            raise UsageError("two_tower learns to tell a user's item from the others of a batch; write loss: softmax")


def _listed(sizes: int | tuple[int, ...]) -> tuple[int, ...]:
    return sizes if isinstance(sizes, tuple) else (sizes,)


@noun
class Checkpointing:
    """When the state of a job is saved: at regular steps, and when a signal ends the job.

    every: steps between two checkpoints. keep: number of the newest checkpoints that are kept. background: whether
    checkpoints are written while training continues, from a copy in host memory. publish: an address such as
    s3://models/clicks, to which checkpoints and the trained model are also copied; a job continues from there if its
    output has no checkpoint, or an older one (docs/launch.md).
    """

    every: int = 1000
    keep: int = 2
    background: bool = False
    publish: str | None = None

    def __post_init__(self) -> None:
        check_rules(
            outside("checkpoint.every", self.every, 1),
            outside("checkpoint.keep", self.keep, 1),
            None
            if self.publish is None or is_address(self.publish)
            else f"checkpoint.publish is '{shown_address(self.publish)}'; it must be an address of a store, such as "
            "s3://models/clicks",
        )
        if self.publish is not None:
            path_of(self.publish)


@noun
class RunMetrics:
    """What is reported during training: NE, log loss, calibration and AUC of the samples since the line before.

    every: steps between two lines. tensorboard: whether TensorBoard files are written; needs the package.
    evaluate_every: steps between two evaluations on data.test; none: only at the end. group: a feature such as a user
    id; evaluations rank the samples that share its id, and report grouped AUC; none: with `at`, a target and its
    `negatives` are ranked together. at: ranks k for which hit rate, recall and NDCG at k are reported. pr_auc: whether
    evaluations also report the area under the precision-recall curve, which says more than AUC if few labels are 1.
    """

    every: int = 100
    tensorboard: bool = False
    evaluate_every: int | None = None
    group: str | None = None
    at: tuple[int, ...] = ()
    pr_auc: bool = False

    def __post_init__(self) -> None:
        check_rules(
            outside("metrics.every", self.every, 1),
            outside("metrics.evaluate_every", self.evaluate_every, 1),
            *(outside("metrics.at", each, 1, 10**6) for each in self.at),
            None
            if len(set(self.at)) == len(self.at)
            else f"metrics.at is {', '.join(map(str, self.at))}; give each place once",
        )


@noun
@keys_of_systems("")
class Run(RunKeys):
    """A training job: data, model, plan, optimizers, communication, checkpoints, metrics.

    data: where samples come from. output: folder to which everything is written. model: the model that is trained.
    plan: a plan file; auto: made for this job when it starts; torchrec: made by TorchRec's own planner, for comparison.
    ranks: processes on this machine if no launcher starts them; none: one for each GPU, or as many as the plan has, or
    one. device: auto trains on GPUs if each rank has one, and otherwise on CPU; cuda refuses to train without GPUs.
    pipeline: how a step is made: base; sparse_dist, which sends the ids of the next batch between ranks while this
    batch is trained; auto uses sparse_dist on GPUs; prefetch_sparse_dist, which also fetches cached rows ahead; or
    another component. steps: number of steps after which training ends, instead of data.epochs. optimizers: the
    optimizers of tables and dense layers. comms: encoding of the embeddings and gradients that are sent between ranks,
    or a component. rows: where the rows of tables are stored: the ranks' devices, or another component. checkpoint:
    when the state is saved; none saves only the trained model. metrics: what is reported during training. watchers:
    what checks the steps and may request an action: components, and functions of yours, 'module:function', that are
    called after each step. capture: folder for a trace of some steps, which `recsmith predict` reads (docs/predict.md);
    none captures nothing. systems: techniques of other packages, by name or 'module:Class', each with its settings
    (docs/extending.md). seed: seed of the initial weights, the order of samples and dropout.

    A component is a name or 'module:Class', or a mapping with `name` and its settings (docs/reference/run.md has all of
    them).
    """

    data: RunData
    output: str
    model: RunModel = RunModel()
    plan: str = "auto"
    ranks: int | None = None
    device: Literal["auto", "cuda"] = "auto"
    pipeline: Component = "auto"
    steps: int | None = None
    optimizers: RunOptimizers = RunOptimizers()
    comms: RunComms | Component = RunComms()
    rows: Component = "device"
    checkpoint: Checkpointing | None = Checkpointing()
    metrics: RunMetrics = RunMetrics()
    watchers: tuple[Component, ...] = ()
    capture: str | None = None
    systems: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    seed: int = 0

    def __post_init__(self) -> None:
        check_rules(
            outside("ranks", self.ranks, 1, MOST_RANKS),
            outside("steps", self.steps, 1),
            outside("seed", self.seed, 0, LARGEST_SEED),
            None if self.pipeline == "auto" else unknown(STEP, self.pipeline, "pipeline"),
            unknown(ROWS, self.rows, "rows"),
            *(unknown(WATCHER, each, "watchers") for each in self.watchers),
            unknown(COLLECTIVES, self.comms, "comms") if names_component(self.comms) else None,
        )
        if not isinstance(self.comms, RunComms) and not names_component(self.comms):
            check_rules(setting_without_name(COLLECTIVES, RunComms, self.comms, "comms"))
            decode_part(RunComms, self.comms, "comms")  # raises an error that names a wrong field
        check_rules(*(sentence for system in systems() for sentence in system.wrong(self)))

    @property
    def order_seed(self) -> int:
        """Seed of the order of samples."""
        return self.seed if self.data.seed is None else self.data.seed

    @property
    def step_named(self) -> tuple[str, dict[str, Any]]:
        """(name, settings) of the component that makes a step: the run's `pipeline`."""
        return parsed(self.pipeline, "pipeline")

    @property
    def batches_in_turn(self) -> int:
        """Batches that a step processes one after the other, if that is known from the run's settings; otherwise 1."""
        name, settings = self.step_named
        return settings.get("batches", ACCUMULATED) if name == "accumulated" else 1

    @property
    def rows_named(self) -> tuple[str, dict[str, Any]]:
        """(name, settings) of the store of rows."""
        return parsed(self.rows, "rows")

    @property
    def watched(self) -> tuple[Component, ...]:
        """All watchers of the run: named by it, added by systems, for its `capture`, and the guard of losses."""
        watch: tuple[Component, ...] = tuple(each for system in systems() for each in system.watchers(self))
        capture: tuple[Component, ...] = () if self.capture is None else ({NAME: "capture", "folder": self.capture},)
        guarded = any(parsed(each, "watchers")[0] == "loss_guard" for each in self.watchers)
        return (*self.watchers, *watch, *capture, *(() if guarded else ("loss_guard",)))


def names_component(value: object) -> bool:
    """Whether a value of a run names a component rather than giving the fields of a noun."""
    return isinstance(value, str) or (isinstance(value, dict) and NAME in value)


def names_modules(run: Run) -> bool:
    """Whether a run names a function or class of the user's anywhere."""
    texts = (*run.systems, *_texts(run_to_raw(run)))
    return any(OF_A_MODULE.fullmatch(text.rpartition("=")[2]) for text in texts)


def _texts(raw: Any) -> Generator[str]:
    """Every string in nested data."""
    if isinstance(raw, str):
        yield raw
    elif isinstance(raw, dict | list):
        for value in cast(dict[str, Any], raw).values() if isinstance(raw, dict) else cast(list[Any], raw):
            yield from _texts(value)


def load_run(source: Run | Source, settings: tuple[str, ...] = ()) -> Run:
    """Read a run from a YAML or JSON file ('-' is stdin), on top of the file that it extends, with `settings` applied.

    A Run is returned as it is, or with `settings` applied.

    settings: 'key=value', keys with dots ('data.batch_size=512'), values as YAML.

    Raises:
        UsageError: the file cannot be read, or a setting is not key=value.
        CorruptFile: it is not a run; every wrong field is named, unknown ones with the nearest known field.
    """
    if isinstance(source, Run) and not settings:
        return source
    raw = run_to_raw(source) if isinstance(source, Run) else _raw_of(source)
    for setting in settings:
        put_setting(raw, setting)
    if isinstance(source, Run):
        return run_from_raw(raw, "the run")
    return run_from_raw(raw, source_text(source, "a Run"), settings)


def _raw_of(source: Source) -> Raw:
    name = source_text(source, "a Run")
    return with_base(parse(read_text(name), name), name, SCHEMA)


def run_from_raw(raw: Raw, source: str, settings: tuple[str, ...] = ()) -> Run:
    """A run from plain data of schema recsmith/run/1. settings: 'key=value' settings already applied to it."""
    return decode(Run, _without_empty(check_schema(raw, SCHEMA, source)), source, settings)


def _without_empty(raw: Raw) -> Raw:
    """The run without groups that are null, such as a group whose lines are all comments: the defaults apply."""
    kept = {key: value for key, value in raw.items() if key not in GROUPS or value is not None}
    optimizers = kept.get("optimizers")
    if isinstance(optimizers, dict):
        named = cast(Raw, optimizers)
        kept["optimizers"] = {key: each for key, each in named.items() if key not in LEARNERS or each is not None}
    return kept


def run_of_job(raw: Raw) -> Run:
    """The run that a process of a job receives, after loading the systems of other packages that it names."""
    run = run_from_raw(raw, "the run")
    use_systems(run)
    return run


def run_to_raw(run: Run) -> Raw:
    """The run as plain data, as it is written to a file."""
    return {"schema": SCHEMA, **encode(run)}


def save_run(run: Run, target: Source) -> None:
    """Write the run to a file, atomically."""
    write_text(source_text(target, "an output"), dump_json(run_to_raw(run)))
