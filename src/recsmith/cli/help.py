"""`recsmith help` and `recsmith completion`."""

import click

from recsmith.errors import UsageError

SHELLS = ("bash", "zsh", "fish")


@click.command(name="help")
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
def help_command(words: tuple[str, ...]) -> None:
    """Say what COMMAND does and takes, as its --help does; without one, list the commands.

    \b
    recsmith help
    recsmith help plan
    recsmith help data check
    """
    context = click.get_current_context().find_root()
    for word in words:
        group = context.command
        if not isinstance(group, click.Group):
            raise UsageError(f"{context.command_path} has no commands of its own; leave '{word}' out")
        found = group.get_command(context, word)
        if found is None:
            known = ", ".join(group.list_commands(context))
            raise UsageError(f"{context.command_path} has no command '{word}'; it has {known}")
        context = click.Context(found, info_name=word, parent=context)
    click.echo(context.get_help())


@click.command(name="completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion_command(shell: str) -> None:
    """Print the script that makes a shell complete commands, options, workloads, devices, planners and files.

    \b
    eval "$(recsmith completion bash)"                                                 # in ~/.bashrc
    eval "$(recsmith completion zsh)"                                                  # in ~/.zshrc
    recsmith completion fish > ~/.config/fish/completions/recsmith.fish
    """
    from recsmith.cli.completion import script

    click.echo(script(shell))
