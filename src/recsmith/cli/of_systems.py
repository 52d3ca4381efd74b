"""Commands of systems of training, each in `command.py` of its folder: listed without importing any."""

from collections.abc import Mapping
from importlib import import_module

import click

from recsmith.training.listed import SYSTEMS

Listed = Mapping[str, tuple[str, str]]  # of each command, its module and what it does


def with_systems(group: str, own: Listed) -> Listed:
    """The commands of a group, with those of systems where they belong."""
    found = dict(own)
    for system, commands in SYSTEMS.items():
        for each in commands:
            if each.group == group:
                listed = list(found.items())
                at = list(found).index(each.after) + 1 if each.after in found else len(listed)
                listed.insert(at, (each.name, (f"recsmith.training.systems.{system}.command", each.about)))
                found = dict(listed)
    return found


def loaded(name: str, module: str) -> click.Command:
    """The command of a name, `<name>_command` of a module."""
    return getattr(import_module(module), f"{name}_command")


class GroupWithSystems(click.Group):
    """A command of several, some of which are of systems."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Our own and those of systems, in alphabetical order as click has them."""
        return sorted([*self.commands, *with_systems(self.name or "", {})])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Ours, or that of a system, which is imported now."""
        of_systems = with_systems(self.name or "", {})
        return loaded(cmd_name, of_systems[cmd_name][0]) if cmd_name in of_systems else self.commands.get(cmd_name)
