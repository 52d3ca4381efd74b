"""The `recsmith` command: a group that imports commands lazily, and turns errors into messages and exit codes."""

import gc
import os
import re
import sys
import warnings
from typing import Any, NoReturn, cast

import click

from recsmith._version import __version__
from recsmith.cli.of_systems import loaded, with_systems
from recsmith.cli.printing import FAILURE, OWN_PROCESS, note, say
from recsmith.errors import NoPlanFound, RecSmithError

OWN = {  # groups of `recsmith --help`: each command's module in recsmith.cli, and its one-line description
    "Plan": {
        "plan": ("plan", "Find a sharding plan for a workload on a cluster."),
        "serve": ("web", "Plan in a browser: a page on this machine, and its JSON API."),
        "compare": ("compare", "Compare planners, and the plan that runs today."),
        "sweep": ("compare", "Plan for several numbers of devices, and show how many are worth their cost."),
        "replan": ("replan", "Plan again from the plan of a running job, without moving much."),
        "fleet": ("fleet", "Assign many jobs to pools of devices at the lowest cost."),
        "advise": ("advise", "Say which changes make a job faster or smaller, and by how much."),
    },
    "Look at plans": {
        "simulate": ("plans", "Price a plan: cost, bound and gap under a cost model."),
        "explain": ("plans", "Explain what limits the step of a plan, and the alternatives of a table."),
        "diff": ("plans", "Show what changed between two plans."),
        "check": ("plans", "Check the proof of a plan's bound, by its certificate."),
        "report": ("web", "Write a page with charts of a plan, which opens without a network."),
        "import": ("plans", "Make a plan file from the plan that a job runs today."),
    },
    "Train": {
        "init": ("init", "Look at data and write a run file for it, with comments."),
        "train": ("train", "Train a recommendation model on TorchRec, under a plan."),
        "launch": ("launch", "Write the job file that starts a run on SLURM, Kubernetes or TorchX."),
        "evaluate": ("train", "Score a trained model on test data."),
        "export": ("train", "Export a trained model to a folder that scores raw rows."),
        "data": ("data", "Look at training data, check it, or generate some whose truth is known."),
        "feed": ("train", "Show how the workers of a training job that read data are doing."),
        "reshard": ("replan", "Move a checkpoint to the shards of another plan."),
        "delta": ("delta", "Send only what a day of training changed to copies of a model."),
    },
    "Predict and measure": {
        "capture": ("predict", "Capture some steps of a training job, to predict others from."),
        "predict": ("predict", "Predict the time of a whole training step, and what would make it shorter."),
        "verify": ("verify", "Measure plans on this machine, and compare with the prediction."),
        "measure": ("measure", "Measure embedding kernels and all-to-alls: the ground truth of cost models."),
        "learn": ("learn", "Train cost models on measurements."),
        "bench": ("bench", "Benchmarks: planners side by side, measured on hardware."),
    },
    "Lists and files": {
        "devices": ("catalogue", "List the devices of the catalogue, with their figures."),
        "planners": ("catalogue", "List the planners and cost models, and what they need."),
        "workload": ("catalogue", "Make workloads: sample tables like those of a production model."),
        "schema": ("catalogue", "Print the JSON Schema of a file."),
        "help": ("help", "Show the help of a command; without one, list all commands."),
        "completion": ("help", "Print a script that lets a shell complete commands, names and files."),
        "doctor": ("catalogue", "Check the installation of PyTorch, FBGEMM and TorchRec."),
    },
}
GROUPS = {  # with the commands of systems added, and full module names
    title: with_systems(title, {name: (f"recsmith.cli.{module}", about) for name, (module, about) in own.items()})
    for title, own in OWN.items()
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
LONGEST = max(map(len, COMMANDS))
# new objects after which Python's garbage collector runs: a plan has as many, all in use, and a collection is slow
NEW_OBJECTS = 100_000
# seconds between switches of Python's threads, a fifth of its default: annealing (compiled code) waits for a thread
# that computes the bound in Python
SWITCH_S = 1e-3
SEARCHING = ("plan", "compare", "sweep", "replan")  # commands that search; options can narrow their search


class LazyGroup(click.Group):
    """Lists commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands in the order of `--help`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, whose module is imported here; UsageError if the name is unknown."""
        if cmd_name not in COMMANDS:
            from recsmith.files import did_you_mean

            raise click.UsageError(f"there is no command '{cmd_name}'{did_you_mean(cmd_name, list(COMMANDS))}", ctx)
        return loaded(cmd_name, COMMANDS[cmd_name][0])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in groups, with their one-line descriptions."""
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(LONGEST), about) for name, (_, about) in group.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="recsmith")
def app() -> None:
    """Plan, predict and train recommendation models whose tables outgrow one device, in seconds and with a bound."""


def main() -> NoReturn:
    """Run the command line: an error becomes one message on stderr and an exit code, never a traceback."""
    warnings.showwarning = _show_warning
    gc.set_threshold(NEW_OBJECTS)
    sys.setswitchinterval(SWITCH_S)
    try:
        _run()
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _fail(_usage(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _fail(_interrupted(sys.argv[1:2]), NoPlanFound.exit_code)
    except BrokenPipeError:  # the program that reads stdout has ended, as `head` does
        _drop_stdout()
    except RecSmithError as error:
        _fail(str(error), error.exit_code)
    except MemoryError:
        _fail(_out_of_memory(sys.argv[1:2]), 1)
    except UnicodeEncodeError as error:
        _fail(f"cannot write the output: {error}; set PYTHONIOENCODING=utf-8", 1)
    except OSError as error:
        if error.filename is not None:  # an error about standard output has no file name
            _fail(f"'{os.fsdecode(error.filename)}': {error.strerror}; check this path and its disk", 1)
        _drop_stdout()
        _fail(f"cannot write the output: {error.strerror or error}; check the disk and that stdout is open", 1)
    sys.exit(0)


def _run() -> None:
    """Parse and run without click's own `main`, which exits with 1 when the program that reads stdout ends."""
    if "_RECSMITH_COMPLETE" in os.environ:
        from recsmith.cli.completion import complete

        sys.exit(complete(app, os.environ["_RECSMITH_COMPLETE"]))
    if cast(Any, sys.stdout) is None:
        raise RecSmithError("standard output is closed; send it to a file, or to /dev/null")
    with app.make_context("recsmith", sys.argv[1:], obj=OWN_PROCESS) as context:
        app.invoke(context)
    sys.stdout.flush()
    if sys.argv[1:2] and sys.argv[1] in SEARCHING:
        gc.freeze()  # so that the objects of a search are not collected once more when Python exits


def _usage(error: click.ClickException) -> str:
    """A usage error of click in the form of our own errors: rule, values, and the --help to read."""
    message = re.sub(r"\.? Did you", "; did you", error.format_message().strip().rstrip("."))
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path if context else "recsmith"
    see = f" See {command} --help" if message.endswith("?") else f"; see {command} --help"
    return f"{message[:1].lower()}{message[1:]}{see}"


def _interrupted(command: list[str]) -> str:
    """The message after Ctrl-C. Commands that keep partial results print that themselves, so here nothing was kept."""
    if command and command[0] in SEARCHING:
        return "interrupted before a plan was found"
    return "interrupted before there was a result; nothing was written"


def _out_of_memory(command: list[str]) -> str:
    """The message when memory runs out: narrow the search, or, for other commands, provide more memory."""
    if command and command[0] in SEARCHING:
        return "out of memory in the search; allow fewer types (--types), or --widths torchrec"
    return "out of memory; end other programs, or use a machine that has more"


def _drop_stdout() -> None:
    """Discard buffered output, so that Python does not try to write it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> NoReturn:
    say(message, FAILURE)
    sys.exit(code)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    note(str(message))
