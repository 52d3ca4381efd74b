"""Options that take the name of a planner or cost model, which other installed packages may offer too."""

from typing import Any

import click


class PluginOption(click.Option):
    """An option whose help ends with the names that other packages offer under a group of entry points."""

    def __init__(self, *words: Any, group: str, **options: Any) -> None:
        super().__init__(*words, **options)
        self.group = group

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The words of the option and its help; packages are looked for when the help is printed."""
        from recsmith._plugins import plugin_names

        record = super().get_help_record(ctx)
        offered = plugin_names(self.group)
        return (record[0], f"{record[1]} Of other packages: {', '.join(offered)}.") if record and offered else record
