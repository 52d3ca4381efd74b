"""A training job as a value: what a run file says, with every default.

    Run(data=RunData(train="criteo/train.tsv.gz"), output="runs/first")

Those of data stand in data.py, those of optimizers in optimizers/settings.py. Runs are read from YAML or JSON, with
`--set key=value` over them. Nothing here imports torch. What a run does is in loop.py, from top to bottom.
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
ACCUMULATED = 4  # batches of a step of pipeline accumulated, where the run says none
MOST_RANKS = 2**16  # of a job: a plan of more takes memory before anybody can refuse it
MOST_UNITS = 2**20  # of a layer, and columns of a table
MOST_LAYERS = 1000  # of a part of a built-in model: a damaged file may name millions, each of them an object
MADE_HERE = ("auto", "torchrec")  # plans that no file holds
GROUPS, LEARNERS = ("model", "optimizers", "metrics"), ("sparse", "dense")  # of keys that always mean something
OF_A_MODULE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")  # module:function
Component = str | dict[str, Any]  # a name or module:Class, or a mapping with `name` and settings


@noun
class RunTable:
    """An embedding table, where the run does not take the data's: several features may share it, and one have several.

    name: unlike any other. num_embeddings: its rows. embedding_dim: its columns; none: those of the model. features: of
    the data; the table's own name where there are none. pooling: none keeps the rows of each id, for a model of yours
    that reads sequences (docs/models.md). data_type: of its weights.
    """

    name: str
    num_embeddings: int
    embedding_dim: int | None = None
    features: tuple[str, ...] = ()
    pooling: Literal["sum", "mean", "none"] = "sum"
    data_type: DataType = "fp32"


@noun
class TableStart:
    """How the weights of some tables start: drawn evenly within `reach` of 0.

    tables: a name, or a pattern such as 'item*'; of several that fit, the first one counts. reach: others have 1 over
    the square root of their rows.
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
    embedding_dim: of every table that names no other. bottom, top: layer sizes of the dense and of the last part,
    without their last layers, which follow from embedding_dim and from the one label. cross_layers, cross_rank: of
    dlrm_dcn. hidden, factors: of deepfm. tables: instead of one table for each feature of the data. arguments: of a
    model that has some, or of a function of yours (docs/models.md). table_module: what pooled tables are built as: a
    component, or 'module:Class' of yours with its settings (docs/models.md). precision: of the dense layers' products;
    bf16 is autocast. index_dedup: whether a rank looks its equal ids up once in tables that are not pooled, where the
    plan is made here; auto: where that pays. loss: binary cross entropy of each label; or softmax, that of the first of
    a sample's candidates among all (docs/sequences.md). tasks: what is learned of each label, instead of one loss for
    all of them (docs/models.md). initial: how the weights of some tables start, by their names.
    """

    name: str = "dlrm"
    embedding_dim: int = 16
    bottom: tuple[int, ...] = (64,)
    top: tuple[int, ...] = (64, 32)
    cross_layers: int = 3  # of MLPerf's DLRM-DCN
    cross_rank: int = 64  # trade-off: MLPerf has 512; small models need less
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
        settings = model_settings(self.name, self.arguments)  # says which of its arguments is wrong
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
    """When the state of the job is saved: every so many steps and when it is ended by a signal.

    every: steps between two of them. keep: the newest ones that stay. background: written while training goes on, from
    a copy in host memory. publish: an address such as s3://models/clicks, where checkpoints and the trained model are
    put as well, and from which a start goes on whose output has none, or an older one (docs/launch.md).
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
    """What is told of training: NE, log loss, calibration and AUC of the samples since the line before.

    every: steps between two lines. tensorboard: written where the package is installed. evaluate_every: steps between
    two evaluations on data.test; none: at the end alone. group: evaluations rank samples that have the same id of this
    feature, such as a user, and tell grouped AUC; none: with `at`, a target and its `negatives` are ranked together.
    at: places k for which hit rate, recall and NDCG are told. pr_auc: evaluations tell the area under the curve of
    precision over recall, too, which says more than AUC where few labels are 1.
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
    """A training job: data, model, plan, optimizers, what crosses ranks, checkpoints, metrics.

    data: where samples come from. output: folder of everything that is written. model: what is trained. plan: a plan
    file; auto: made for this job when it starts; torchrec: made by TorchRec's own planner, to compare. ranks: processes
    of this machine where no launcher starts them; none: its GPUs, or as many as the plan has, or one. device: auto
    trains on GPUs where each rank has one and on CPU elsewhere; cuda refuses to train without them. pipeline: what
    makes a step: base; sparse_dist, under which the ids of the next batch cross ranks while this one trains; auto takes
    it on GPUs; prefetch_sparse_dist, which fetches cached rows too; or another component. steps: after which training
    ends, instead of data.epochs. optimizers: how weights learn. comms: in which form embeddings and their gradients
    cross ranks, or a component. rows: who holds the rows of tables: the devices of ranks, or another component.
    checkpoint: when the state is saved; none saves nothing but the trained model. metrics: what is told of training.
    watchers: what looks at steps and may ask for something: components, and functions of yours, 'module:function', that
    hear of each step. capture: folder for the trace of some steps, which `recsmith predict` reads (docs/predict.md);
    none captures nothing. systems: techniques of other packages, by name or 'module:Class', each with its settings
    (docs/extending.md). seed: from which weights at the start, the order of samples and dropout follow.

    A component is a name or 'module:Class', or a mapping with `name` and its settings (docs/reference/run.md has
    all of them).
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
            decode_part(RunComms, self.comms, "comms")  # says which of its fields is wrong
        check_rules(*(sentence for system in systems() for sentence in system.wrong(self)))

    @property
    def order_seed(self) -> int:
        """From which the order of samples follows."""
        return self.seed if self.data.seed is None else self.data.seed

    @property
    def step_named(self) -> tuple[str, dict[str, Any]]:
        """(name, settings) of what makes a step: its `pipeline`."""
        return parsed(self.pipeline, "pipeline")

    @property
    def batches_in_turn(self) -> int:
        """Batches that a step takes one after the other, where that is known before."""
        name, settings = self.step_named
        return settings.get("batches", ACCUMULATED) if name == "accumulated" else 1

    @property
    def rows_named(self) -> tuple[str, dict[str, Any]]:
        """(name, settings) of the store of rows."""
        return parsed(self.rows, "rows")

    @property
    def watched(self) -> tuple[Component, ...]:
        """The watchers that it names, those of systems, the capture that it asks for, and the guard of losses."""
        watch: tuple[Component, ...] = tuple(each for system in systems() for each in system.watchers(self))
        capture: tuple[Component, ...] = () if self.capture is None else ({NAME: "capture", "folder": self.capture},)
        guarded = any(parsed(each, "watchers")[0] == "loss_guard" for each in self.watchers)
        return (*self.watchers, *watch, *capture, *(() if guarded else ("loss_guard",)))


def names_component(value: object) -> bool:
    """Whether a value of a run names a component, beside the fields of a noun that may stand there too."""
    return isinstance(value, str) or (isinstance(value, dict) and NAME in value)


def names_modules(run: Run) -> bool:
    """Whether a run names functions or classes of the user's, anywhere."""
    texts = (*run.systems, *_texts(run_to_raw(run)))
    return any(OF_A_MODULE.fullmatch(text.rpartition("=")[2]) for text in texts)


def _texts(raw: Any) -> Generator[str]:
    """Every text of nested data."""
    if isinstance(raw, str):
        yield raw
    elif isinstance(raw, dict | list):
        for value in cast(dict[str, Any], raw).values() if isinstance(raw, dict) else cast(list[Any], raw):
            yield from _texts(value)


def load_run(source: Run | Source, settings: tuple[str, ...] = ()) -> Run:
    """The run of a YAML or JSON file ('-' is stdin), over the file that it extends, with some of its values replaced.

    A Run is taken as it is.

    settings: 'key=value', keys with dots ('data.batch_size=512'), values as YAML.

    Raises:
        UsageError: the file cannot be read, or a setting is not key=value.
        CorruptFile: it is not a run; every wrong field is named, unknown ones with the nearest known one.
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
    """A run from plain data of schema recsmith/run/1. settings: whose values are in it in place of the source's."""
    return decode(Run, _without_empty(check_schema(raw, SCHEMA, source)), source, settings)


def _without_empty(raw: Raw) -> Raw:
    """A group of keys that is null, as one whose lines are all comments, says as much as one that is left out."""
    kept = {key: value for key, value in raw.items() if key not in GROUPS or value is not None}
    optimizers = kept.get("optimizers")
    if isinstance(optimizers, dict):
        named = cast(Raw, optimizers)
        kept["optimizers"] = {key: each for key, each in named.items() if key not in LEARNERS or each is not None}
    return kept


def run_of_job(raw: Raw) -> Run:
    """The run that a process of a job is given, with the systems of other packages that it names."""
    run = run_from_raw(raw, "the run")
    use_systems(run)
    return run


def run_to_raw(run: Run) -> Raw:
    """Plain data of a run, as a file holds it."""
    return {"schema": SCHEMA, **encode(run)}


def save_run(run: Run, target: Source) -> None:
    """Write the run's file, whole or not at all."""
    write_text(source_text(target, "an output"), dump_json(run_to_raw(run)))
