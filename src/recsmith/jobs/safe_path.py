"""Where the processes of a local job find modules: never in the working folder, unless the user named a module.

Python looks for modules in the working folder first (`python -m`, `python -c`, an interactive session). A file of any
name may lie there, `secrets.py` for example, and would be run in place of the library's. Processes of a job start with
-P and PYTHONSAFEPATH, and get these places instead.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import recsmith


def places_of_modules(*, own: bool) -> list[str]:
    """The places of this process (sys.path) for its jobs. own: whether a job runs nothing but RecSmith.

    The working folder is left out of RecSmith's own jobs, and stays for a module that the user named. It also stays
    where it is what RecSmith itself was imported from, as in a checkout.
    """
    here = os.path.realpath(os.curdir)
    entries = [entry or here for entry in sys.path]
    return _without(here, entries) if own and _home() != here else list(dict.fromkeys(entries))


def _without(folder: str, entries: Sequence[str]) -> list[str]:
    return [entry for entry in dict.fromkeys(entries) if os.path.realpath(entry) != folder]


def _home() -> str:
    """The folder that holds the package."""
    return os.path.realpath(Path(recsmith.__file__).parents[1])
