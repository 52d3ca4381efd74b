"""How a new period is learnt: an update (protocol.py), which a run names as data.periods.update. Without torch."""

from typing import Any

from recsmith._components import make
from recsmith.training.seams import UPDATE


def update_of(wanted: object) -> Any:
    """The Update of a name or 'module:Class', with settings.

    Raises:
        UsageError: nothing is called so, or a setting is wrong.
    """
    return make(UPDATE, wanted, where="data.periods.update")
