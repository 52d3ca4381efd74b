"""A published technique as one folder of systems/: what it adds to runs, in a record; without torch.

What a record leaves out changes nothing. registry.py has all records, and asks them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from recsmith._types import Ints, noun
from recsmith.analyses.paying import gain_of
from recsmith.files import Raw, decode_part
from recsmith.plans import Plan
from recsmith.problems import TableRule
from recsmith.sharding import TYPE_NAMES

if TYPE_CHECKING:
    from recsmith.analyses.advice import Switch

# Kinds of components that a run names, as errors call them.
STEP, ROWS, WATCHER, UPDATE, TABLES = "step", "row store", "watcher", "update", "table module"
PREDICTED = "predicted optimizer"  # a function (shapes of dense layers, cluster, a step's seconds): what it adds
MODEL = "model"  # of histories (models/protocol.py)

NO_COPIES = TableRule(tables="*", sharding_types=tuple(name for name in TYPE_NAMES if name != "data_parallel"))


@noun
class SystemTold:
    """A system of a run. key: of the run. on: whether the run has it. said: what it brings or costs, in a sentence."""

    key: str
    on: bool
    said: str


@dataclass(frozen=True)
class TablesAsked:
    """How a run's tables are built, as far as a system says so.

    run: with what the system decided. module: the table module that it wants, as a run names one; None for that of the
    run. told: what was decided, and why. parts: what tables so built refuse (run/parts.py).
    """

    run: Any
    module: Any = None
    told: tuple[SystemTold, ...] = ()
    parts: tuple[Any, ...] = ()


def _as_predicted(*said: Any) -> Any:
    """A step as it is, of (run, plan, ranks, step)."""
    return said[-1]


@dataclass(frozen=True)
class OpenRun:
    """A run while systems decide what it leaves open, one after the other.

    run: so far. parts: its data and model (Unsharded). plan: as it was given. priced: with the run's batch and
    optimizer. shapes: of dense parameters. numbers: of gradients that cross ranks. comms: what crosses ranks, so far.
    step: predicted, so far; None where it is not. before: the run of the checkpoint that training goes on from, whose
    choices stay. told: what was decided, and why. lengths: of the histories of the first step, rank by rank, where the
    model is one of histories and the step is predicted. ranks: that train. told_step: how a dry run tells a step of a
    run, a plan and ranks.
    """

    run: Any
    parts: Any
    plan: Plan
    priced: Plan
    shapes: Sequence[Sequence[int]]
    numbers: int
    comms: Any
    step: Any = None
    before: Any = None
    told: tuple[SystemTold, ...] = ()
    lengths: Ints | None = None
    ranks: int = 1
    told_step: Callable[[Any, Plan, int, Any], Any] = _as_predicted

    def gain_of(self, step: Any) -> float:
        """The share of a step that another one saves, both as a dry run tells them, by which advice goes too.

        Where steps are not predicted there is none.
        """
        before, after = (self.told_step(self.run, self.priced, self.ranks, each) for each in (self.step, step))
        return gain_of(before.step_s, after.step_s) if before is not None and after is not None else 0.0

    def telling(self, key: str, on: bool, lines: Iterable[str]) -> "OpenRun":
        """The same, with lines of a system."""
        return replace(self, told=(*self.told, *(SystemTold(key=key, on=on, said=line) for line in lines)))


@dataclass(frozen=True)
class RunFacts:
    """What is known of a decided run: its plan as it is priced, the predicted step, and what each rank holds.

    step: None where it is not predicted. memory: of each rank. numbers: of dense layers. ranks: that train. batches: of
    a rank in the whole run, where it ends with its data and their number is known. matrices: of dense layers.
    """

    plan: Plan
    step: Any
    memory: Sequence[Any]
    numbers: int
    ranks: int
    batches: int | None = None
    matrices: int = 0


class Attached(Protocol):
    """What a system has in a job while it trains, beside the components that the run names.

    One that derives this does nothing where it says nothing.
    """

    def begin(self, steps: int | None, kept: Raw | None) -> None:
        """Begin a job of so many steps (None: nobody knows), or go on from what a checkpoint kept."""

    def before_step(self, job: Any) -> None:
        """Do what is due before the next step of a TrainingJob."""

    def to_raw(self) -> Raw | None:
        """What a checkpoint keeps; None for nothing."""
        return None


class System:
    """What a technique adds to runs. Derive it, and write the methods that it needs.

    key: of the run, such as 'rows', that says whether a run has it. settings: the type of what stands there, and about:
    what that means, for the reference; None and '' where the key is of the core, as that of a component is. untold:
    whether training goes on as before where the key changes. components: by key of a run, the kind of those that its
    settings name, and how many arguments their maker hands over. kept: under which its part of a job is kept in
    checkpoints, and state: the noun of that. cards: by key of a trained model's card, the noun of what it says there.
    name: of a system of another package, that of its entry point; its settings stand in `systems` of the run. '' of one
    of RecSmith's.
    """

    name: str = ""
    key: str = ""
    settings: Any = None
    about: str = ""
    untold: bool = False
    components: ClassVar[Mapping[str, tuple[str, int]]] = {}
    kept: str = ""
    state: Any = None
    cards: ClassVar[Mapping[str, Any]] = {}

    def settings_in(self, run: Any) -> Any:
        """Its settings in a run, of a system of another package; None where the run does not name it."""
        raw = run.systems.get(self.name)
        return None if raw is None else decode_part(self.settings, raw, f"systems.{self.name}")

    def said_in(self, card: Any) -> Raw | None:
        """What it said in the card of a trained model (`exported`), of one of another package; None for nothing."""
        return (card.systems or {}).get(self.name)

    def wrong(self, run: Any) -> Iterable[str | None]:
        """What is wrong with a run as it is written, a sentence each."""
        return ()

    def check(self, run: Any, *, launched: bool) -> None:
        """Raise where something is missing that a run needs. launched: whether a launcher started this process."""

    def watchers(self, run: Any) -> Sequence[Any]:
        """Watchers that a run has by it, as a run names them."""
        return ()

    def table_parts(self, model: Any) -> Sequence[Any]:
        """The parts of a run's model that build tables."""
        return ()

    def data_parts(self, run: Any) -> Sequence[Any]:
        """The parts of a run's data."""
        return ()

    def row_parts(self, run: Any) -> Sequence[Any]:
        """The parts of a run that hold rows."""
        return ()

    def layer_parts(self, run: Any, *, undecided: bool = False) -> Sequence[Any]:
        """The parts of a run that train dense layers. undecided: also those that `auto` may switch on."""
        return ()

    def placed_parts(self, run: Any, plan: Plan) -> Sequence[Any]:
        """The parts that a run has under a plan."""
        return ()

    def plan_rules(self, run: Any, hosts: int) -> Sequence[TableRule]:
        """What a plan that is made for a run must keep."""
        return ()

    def run_of_plan(self, run: Any, ranks: int) -> tuple[Any, int] | None:
        """(the run whose tables are planned, on how many devices) where ranks that train do not hold tables."""
        return None

    def source(self, run: Any, dataset: Any) -> Any:
        """Where batches of a dataset come from; None for epoch after epoch."""
        return None

    def batches_of_a_step(self, run: Any) -> int:
        """Batches that a step takes together, at most."""
        return 1

    def deal(self, run: Any) -> Any:
        """By what work the samples of a step are dealt to ranks (data/dealing.py); None: as they are stored."""
        return None

    def tables(self, run: Any, source: Any) -> TablesAsked:
        """How tables are built, for the data of a source."""
        return TablesAsked(run)

    def table_module(self, model: Any, tables: Sequence[Any]) -> Any:
        """The table module of pooled tables, as a run names one, where a model's settings ask for it; else None."""
        return None

    def sequences(self, model: Any, tables: Sequence[Any], configs: Sequence[Any], device: Any) -> Any:
        """The module of tables whose rows are not pooled, where a model's settings ask for another than TorchRec's."""
        return None

    def sizes(self, model: Any, of_data: Mapping[str, int | None]) -> Mapping[str, int | None]:
        """Rows of the tables of features, where a model's settings say them. of_data: ids by the data."""
        return of_data

    def check_model(self, run: Any, model: Any) -> None:
        """Raise where a model cannot be trained so."""

    def trains_layers(self, run: Any) -> bool:
        """Whether the run's step trains dense layers itself, in place of their optimizer."""
        return False

    def layer_state(self, run: Any, numbers: int) -> int | None:
        """Bytes that its step keeps beside so many numbers of dense layers, where it trains them itself; else None."""
        return None

    def tables_rest(self, run: Any) -> bool:
        """Whether tables learn nothing."""
        return False

    def needs_step(self, run: Any) -> bool:
        """Whether it decides by the predicted step."""
        return False

    def decide(self, made: OpenRun) -> OpenRun:
        """Decide what the run leaves open, and change the predicted step by what it brings."""
        return made

    def kept_plan(self, run: Any, plan: Plan) -> Plan:
        """The plan as the run keeps its rows: by which memory is told."""
        return plan

    def change_step(self, run: Any, plan: Plan, step: Any, numbers: int) -> Any:
        """The predicted step with what the run's settings make of it. numbers: of gradients that cross ranks."""
        return step

    def change_told_step(self, run: Any, plan: Plan, ranks: int, step: Any) -> Any:
        """The step as it is told once all is decided. ranks: that train."""
        return step

    def bytes_of_number(self, run: Any) -> int | None:
        """Of a weight of dense layers, where it is not of fp32."""
        return None

    def more_bytes(self, run: Any, plan: Plan) -> int:
        """What it holds of memory at the peak of a step beside tables, batch and layers."""
        return 0

    def change_memory(self, run: Any, plan: Plan, memory: Sequence[Any], activations: int) -> Sequence[Any]:
        """What each rank holds (RankMemory), where parts of it are not there at once. activations: bytes of a rank."""
        return memory

    def told(self, run: Any, told: RunFacts) -> Sequence[SystemTold]:
        """What a run has of it, and what that does to bytes and time, where `decide` has not said so."""
        return ()

    def switches(self, run: Any) -> "Sequence[Switch]":
        """What a run could switch on of it and has not yet: `recsmith advise` prices a dry run with each."""
        return ()

    def notes(self, run: Any, source: Any, steps: int | None) -> Sequence[str]:
        """Lines of a dry run beside those. steps: of the run, where they are known."""
        return ()

    def steps_notes(self, run: Any, source: Any, ranks: int) -> Sequence[str]:
        """Lines of a dry run, and of a job as it begins, where its steps are other than so many batches each."""
        return ()

    def attached(self, run: Any, model: Any) -> Attached | None:
        """What it has in a job while that trains. model: before it is sharded."""
        return None

    def begin_weights(self, made: Any, job: Any) -> None:
        """Change what was drawn for a fresh start of a PreparedRun, on every rank of a ShardedJob."""

    def watched_before(self, run: Any) -> tuple[Mapping[str, Raw], str] | None:
        """What watchers kept of the training that a run starts from, by their names, and its path."""
        return None

    def begins_with(self, before: Any, model: Any, tables: Sequence[str], path: str) -> Sequence[str]:
        """Lines of what comes along when a model of a run begins with the tables of a training; raises where it cannot.

        before: the training's model. tables: that come along. path: of the training, as the run names it.
        """
        return ()

    def begin_rows(self, run: Any, job: Any, before: Any, rows: Mapping[str, int]) -> Mapping[str, Ints]:
        """Take along what belongs to rows of tables; where rows stand now that stood elsewhere: rows there, -1 of new.

        before: the training, opened. rows: there, of each table that comes along.
        """
        return {}

    def line(self, job: Any, steps: int) -> tuple[Raw, str]:
        """(what a line of log.jsonl says of a job, the same in words), on every rank. steps: since the line before."""
        return {}, ""

    def result(self, job: Any) -> Raw:
        """What the result of a training says of it; called on every rank."""
        return {}

    def brought(self, job: Any) -> Mapping[str, str]:
        """What it brought to a job that ends, beside what was told: a sentence by each of its keys that is on.

        By figures that the job has, and nothing where it has none. Called on every rank; what rank 0 says is told.
        """
        return {}

    def as_before(self, before: Any, run: Any) -> Any:
        """The run, of whose choices that build its model those that are auto are as in the checkpoint of `before`."""
        return run

    def check_goes_on(self, before: Any, run: Any) -> None:
        """Raise where a run cannot go on from a checkpoint of `before`."""

    def kernel_facts(self, run: Any, plan: Plan) -> Mapping[str, Any]:
        """What the kernels of the run's row store are told beside its settings."""
        return {}

    def worded_plan(self, run: Any, plan: Plan, device: str) -> tuple[Plan, Mapping[str, Any]] | None:
        """(the plan in the words of TorchRec, constraints by table), where tables are kept in another way."""
        return None

    def host_parts(self, task: Any, plan: Plan, device: Any, codecs: Any) -> Any:
        """What the ranks of a host have that others do not (HostParts of stores/protocol.py); None for nothing."""
        return None

    def start_facts(self, run: Any, plan: Plan) -> Raw:
        """What the line `start` of log.jsonl says of it."""
        return {}

    def start_lines(self, run: Any, plan: Plan) -> Sequence[str]:
        """What a job says of it when it starts."""
        return ()

    def tensors(self, run: Any, job: Any) -> Mapping[str, Any]:
        """What checkpoints keep of it beside tables and layers, by names of their own, on the rank that has each.

        Those of a checkpoint are loaded into them. job: a ShardedJob.
        """
        return {}

    def loaded(self, run: Any, job: Any) -> None:
        """Do what is due once a checkpoint was loaded into `tensors`."""

    def write_files(self, run: Any, job: Any, folder: Any) -> None:
        """Write files of its own into the folder of a trained model, on every rank. job: a ShardedJob."""

    def exported(self, run: Any, model: Any) -> Raw:
        """What the card of the trained model says of it. model: the sharded one."""
        return {}

    def scored_run(self, run: Any, card: Any, folder: Any) -> Any:
        """The run by whose settings a trained model is scored. card: the model's. folder: of the run.

        One of another package is asked where it said something in the card.
        """
        return run

    def keep_files(self, model: Any, folder: Any) -> Any:
        """Copy files that a model's settings name into the folder of what was trained; the model that names these."""
        return model

    def model_in(self, model: Any, folder: Any) -> Any:
        """The model of a card in a folder, with the paths of such files there."""
        return model

    def before_serving(self, model: Any, card: Any) -> None:
        """Change a trained model, by its card, as it was in training."""

    def trained_runs(self, run: Any) -> Sequence[Any] | None:
        """The runs that are trained in place of one; None: itself."""
        return None

    def describe(self, run: Any) -> Any:
        """The dry run of a run that it trains in another way; None elsewhere."""
        return None

    def launch(self, run: Any, ranks: int, restarts: int, hear: Any) -> Raw | None:
        """Start a run that it trains in another way: what came of it; None elsewhere. hear: messages of ranks."""
        return None

    def join(self, run: Any, hear: Any) -> Raw | None:
        """Train beside a job of a run that is there already; None where no job can be joined."""
        return None

    def rank_times(self, job: Any, ranks: int) -> Raw:
        """What the times of all ranks, which a job writes at its end, say of it."""
        return {}

    def at_the_end(self, job: Any, times: Raw) -> str | None:
        """What it would bring, by the times of all ranks."""
        return None

    def train(self, run: Any, agreement: Any, ending: Any, train_one: Any, train_prepared: Any) -> Any:
        """Train a run on this rank in another way: what came of it; None elsewhere."""
        return None

    def decided_run(self, run: Any, train: Any, say: Any) -> Any:
        """The run with what is decided by trainings before it."""
        return run

    def stretches(self, job: Any, batches: Any, watchers: Any) -> Any:
        """The batches of a job in parts, between which something is done; None for all at once."""
        return None
