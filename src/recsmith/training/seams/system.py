"""A published technique as one folder of systems/: what it adds to runs, in a record; without torch.

A record is a System. What it is asked stands in three modules, in the order in which it is asked: building.py while a
run is read and built, predicting.py before it starts, in_jobs.py while it trains and of the model that it leaves. What
a record leaves out changes nothing. registry.py has all records, and asks them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from recsmith.files import Raw, decode_part
from recsmith.training.seams.building import Building
from recsmith.training.seams.in_jobs import InJobs, OfModels
from recsmith.training.seams.predicting import Predicting

if TYPE_CHECKING:
    from recsmith.training.job.agreement import Agreement, Ending
    from recsmith.training.job.card import ModelCard
    from recsmith.training.run.run import Run

# Kinds of components that a run names, as errors call them.
STEP, ROWS, WATCHER, UPDATE, TABLES = "step", "row store", "watcher", "update", "table module"
PREDICTED = "predicted optimizer"  # a function (shapes of dense layers, cluster, a step's seconds): what it adds
MODEL = "model"  # of histories (models/protocol.py)

Hear = Callable[[Any], None]  # of messages of ranks


class System(Building, Predicting, InJobs, OfModels):
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

    def settings_in(self, run: "Run") -> Any:
        """Its settings in a run, of a system of another package; None where the run does not name it."""
        raw = run.systems.get(self.name)
        return None if raw is None else decode_part(self.settings, raw, f"systems.{self.name}")

    def said_in(self, card: "ModelCard") -> Raw | None:
        """What it said in the card of a trained model (`exported`), of one of another package; None for nothing."""
        return (card.systems or {}).get(self.name)

    # --- a run that it trains in another way than as one job ---------------------------------------------------------

    def trained_runs(self, run: "Run") -> "Sequence[Run] | None":
        """The runs that are trained in place of one; None: itself."""
        return None

    def describe(self, run: "Run") -> Any:
        """The dry run of a run that it trains in another way; None elsewhere."""
        return None

    def launch(self, run: "Run", ranks: int, restarts: int, hear: "Hear") -> Raw | None:
        """Start a run that it trains in another way: what came of it; None elsewhere. hear: messages of ranks."""
        return None

    def join(self, run: "Run", hear: "Hear") -> Raw | None:
        """Train beside a job of a run that is there already; None where no job can be joined."""
        return None

    def train(
        self, run: "Run", agreement: "Agreement", ending: "Ending", train_one: Any, train_prepared: Any
    ) -> Raw | None:
        """Train a run on this rank in another way: what came of it; None elsewhere."""
        return None

    def decided_run(self, run: "Run", train: "Callable[[Run], Raw]", say: "Callable[[str], None]") -> "Run":
        """The run with what is decided by trainings before it."""
        return run
