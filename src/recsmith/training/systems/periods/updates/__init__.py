"""Updates (protocol.py): ways to learn a new period, which a run names as data.periods.update. Without torch."""

from typing import Any

from recsmith._components import make
from recsmith.training.seams import UPDATE


def update_of(wanted: object) -> Any:
    """The Update for a name or 'module:Class', with settings.

    Raises:
        UsageError: no update has this name, or a setting is wrong.
    """
    return make(UPDATE, wanted, where="data.periods.update")
