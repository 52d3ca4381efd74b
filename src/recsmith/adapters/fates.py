"""What can become of a field or setting of TorchRec: carried, counted or refused; nothing in between."""

from dataclasses import dataclass
from typing import Any, Literal

from recsmith.errors import UsageError

SHOWN_VALUE = 80  # characters of a refused value that an error shows; longer ones hide what to do about them


@dataclass(frozen=True)
class Fate:
    """What becomes of one field.

    kind: 'carried' (the job gets it unchanged), 'counted' (planning uses it) or 'refused' (an error, unless it is at
    its default). words: how, for the tables in docs/torchrec.md; of refused fields why, and what to do instead.
    """

    kind: Literal["carried", "counted", "refused"]
    words: str


def refusal(where: str, name: str, value: Any, words: str) -> UsageError:
    """The error for a field that is not kept: where it stands, its value, why and what to do."""
    return UsageError(f"{where}: {name} is {repr(value)[:SHOWN_VALUE]}; {words}")
