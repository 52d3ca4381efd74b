"""The settings of `start_from`: the training whose weights a run starts with."""

from recsmith._types import noun
from recsmith.errors import check_rules


@noun
class StartFrom:
    """A trained run, checkpoint or model whose weights a run starts with.

    path: the output folder of a run, whose newest checkpoint is used; one checkpoint (`step-...`); or an exported
    model. optimizer: whether to load the state of its optimizers too, for optimizers that the run also has.
    """

    path: str
    optimizer: bool = True

    def __post_init__(self) -> None:
        check_rules(None if self.path else "start_from.path is empty; name the folder of a run")


def start_of(said: str | StartFrom) -> StartFrom:
    """The settings as StartFrom, also if the run gives only a path."""
    return StartFrom(path=said) if isinstance(said, str) else said
