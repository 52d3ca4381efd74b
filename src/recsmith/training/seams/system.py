"""A published technique as one folder of systems/: the record of what it adds to runs; without torch.

A record is a System. Its methods are in three modules, in the order in which they are called: building.py while a run
is read and built, predicting.py before it starts, in_jobs.py while it trains and for the model that it produces. A
method that a record leaves out changes nothing. registry.py has all records, and calls them.
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

# Kinds of components that a run names, with their names in error messages.
STEP, ROWS, WATCHER, UPDATE, TABLES = "step", "row store", "watcher", "update", "table module"
PREDICTED = "predicted optimizer"  # a function of (dense shapes, cluster, step seconds) that returns added time
MODEL = "model"  # models of models/, by name (models/protocol.py)

Hear = Callable[[Any], None]  # called with messages of ranks


class System(Building, Predicting, InJobs, OfModels):
    """What a technique adds to runs. Derive it, and write the methods that it needs.

    key: key of the run, such as 'rows', that says whether a run has the system. settings: type of the value at that
    key, and about: its meaning, for the reference; None and '' if the key belongs to the core, like that of a
    component. untold: whether the key does not affect training, so that a change is not reported when a checkpoint is
    continued. components: by key of a run, the kind of the components that its settings name, and how many positional
    arguments their maker passes. kept: key under which checkpoints keep its part of a job, and state: the noun of that
    part. cards: by key of a trained model's card, the noun that it writes there. name: for a system of another package,
    the name of its entry point, and its key in `systems` of the run; '' for RecSmith's own systems.
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
        """The settings that a run gives a system of another package; None if the run does not name it."""
        raw = run.systems.get(self.name)
        return None if raw is None else decode_part(self.settings, raw, f"systems.{self.name}")

    def said_in(self, card: "ModelCard") -> Raw | None:
        """What a system of another package wrote into a trained model's card (`exported`); None if nothing."""
        return (card.systems or {}).get(self.name)

    # --- a run that it trains in another way than as one job ---------------------------------------------------------

    def trained_runs(self, run: "Run") -> "Sequence[Run] | None":
        """The runs that are trained in place of this one; None: the run itself."""
        return None

    def describe(self, run: "Run") -> Any:
        """The dry run of a run that the system trains differently; None if it does not."""
        return None

    def launch(self, run: "Run", ranks: int, restarts: int, hear: "Hear") -> Raw | None:
        """Start a run that the system trains differently, and return its result; None if it does not.

        hear: called with messages of ranks.
        """
        return None

    def join(self, run: "Run", hear: "Hear") -> Raw | None:
        """Join an already running job as an additional trainer; None if the system has no job to join."""
        return None

    def train(
        self, run: "Run", agreement: "Agreement", ending: "Ending", train_one: Any, train_prepared: Any
    ) -> Raw | None:
        """Train a run on this rank if the system trains it differently, and return the result; None if it does not."""
        return None

    def decided_run(self, run: "Run", train: "Callable[[Run], Raw]", say: "Callable[[str], None]") -> "Run":
        """The run after decisions that need trainings of their own, which happen first."""
        return run
