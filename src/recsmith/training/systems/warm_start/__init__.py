"""Start a run with the weights of an earlier training: `start_from` of a run (docs/daily.md).

A model that is trained every day starts with what it learned the day before. trained.py opens the earlier training.
matching.py decides which of its weights the run's model takes, and what is new, larger or gone; layers.py names the
feature of each input of a layer. loading.py loads weights into a rank's shards, under any plan. A run that continues
from its own checkpoint does not start again.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from recsmith.files import Raw
from recsmith.problems import TableRule
from recsmith.training.seams.capabilities import START, Capabilities, PlainPart
from recsmith.training.seams.predicting import OpenRun
from recsmith.training.seams.system import System
from recsmith.training.systems.warm_start.settings import StartFrom, start_of
from recsmith.training.watchers import STATES

if TYPE_CHECKING:
    from recsmith.training.job.preparing import PreparedRun
    from recsmith.training.job.sharded import ShardedJob
    from recsmith.training.run.run import Run
    from recsmith.training.seams.capabilities import Part

STARTS = PlainPart("start_from", owns=Capabilities({START}))


class WarmStart(System):
    """The system that loads weights of an earlier training at the start of a run (`start_from`)."""

    key = "start_from"
    settings = StartFrom | str
    about = (
        "a run, a checkpoint or a trained model whose weights this run begins with (docs/daily.md); none: weights are "
        "drawn"
    )

    def wrong(self, run: "Run") -> Sequence[str | None]:
        """Refuse a run that starts from its own output."""
        return () if run.start_from is None else (_itself(start_of(run.start_from).path, run.output),)

    def row_parts(self, run: "Run") -> Sequence["Part"]:
        """The part that sets the first weights of tables."""
        return () if run.start_from is None else (STARTS,)

    def plan_rules(self, run: "Run", hosts: int) -> Sequence[TableRule]:
        """Rules for a new plan, so that the optimizer state of every table can be loaded under it."""
        if run.start_from is None:
            return ()
        from recsmith.training.systems.warm_start.loading import plan_rules

        return plan_rules(run)

    def decide(self, made: OpenRun) -> OpenRun:
        """Lines on what is loaded; none if the run continues from its own checkpoint."""
        if made.run.start_from is None or made.before is not None:
            return made
        from recsmith.training.systems.warm_start.loading import matched

        return made.with_lines(self.key, True, matched(made.run, made.parts, made.plan).lines)

    def watched_before(self, run: "Run") -> tuple[Mapping[str, Raw], str] | None:
        """The states of watchers in the earlier training, and its path; None if the run starts from none."""
        if run.start_from is None:
            return None
        from recsmith.training.systems.warm_start.trained import open_trained

        path = start_of(run.start_from).path
        saved = open_trained(path).saved
        return None if saved is None else (saved.progress.get(STATES) or {}, path)

    def begin_weights(self, made: "PreparedRun", job: "ShardedJob") -> None:
        """Load weights and optimizer state over those that were drawn."""
        if made.run.start_from is None:
            return
        from recsmith.training.systems.warm_start.loading import load_start

        load_start(made, job)


def _itself(path: str, output: str) -> str | None:
    if path.rstrip("/") != output.rstrip("/"):
        return None
    return (
        f"start_from is '{path}', the run's own output; leave start_from out to go on from its newest checkpoint, or "
        "give the run another output"
    )


SYSTEM = WarmStart()
