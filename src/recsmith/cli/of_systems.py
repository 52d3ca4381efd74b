"""Commands of training systems, each in `command.py` of the system's folder: listed without importing them."""

from collections.abc import Mapping
from importlib import import_module

import click

from recsmith.training.listed import SYSTEMS

Listed = Mapping[str, tuple[str, str]]  # command name -> (module, one-line description)


def with_systems(group: str, own: Listed) -> Listed:
    """The commands of a group, with the commands of systems inserted where they belong."""
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
    """Import a module and return its command `<name>_command`."""
    return getattr(import_module(module), f"{name}_command")


class GroupWithSystems(click.Group):
    """A group of commands, some of which belong to systems."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of its own commands and of those of systems, sorted as click does."""
        return sorted([*self.commands, *with_systems(self.name or "", {})])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One of its own commands, or a system's command, whose module is imported here."""
        of_systems = with_systems(self.name or "", {})
        return loaded(cmd_name, of_systems[cmd_name][0]) if cmd_name in of_systems else self.commands.get(cmd_name)
