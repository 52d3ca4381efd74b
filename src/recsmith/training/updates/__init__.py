"""How a new period is learnt: an update (protocol.py), which a run names as data.periods.update. Without torch."""

from typing import Any

from recsmith._components import make, register

KIND = "update"
register(KIND, "incremental", "recsmith.training.updates.passes:Incremental")
register(KIND, "window", "recsmith.training.updates.passes:WindowUpdate")
register(KIND, "auto", "recsmith.training.updates.auto:AutoUpdate")
register(KIND, "future_gradient", "recsmith.training.updates.future_gradient:FutureGradient")


def update_of(wanted: object) -> Any:
    """The Update of a name or 'module:Class', with settings.

    Raises:
        UsageError: nothing is called so, or a setting is wrong.
    """
    return make(KIND, wanted, where="data.periods.update")
