"""What a shell offers after a word and Tab: commands, options, and names and files where a command takes them.

Only the names that --help lists are offered, so nothing costly is imported while the shell waits. In a list with
commas, the word after the last comma is completed; after a device come the numbers of devices per host. Bash splits
words at colons, which names of clusters and cost models contain, and drops names when files are offered as well: the
script here does neither.
"""

from collections.abc import Callable, Sequence
from importlib import resources

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    shell_complete,
)

from recsmith import _plugins
from recsmith.cli.options import DEVICES, KERNELS, PLANNERS, TYPES
from recsmith.errors import UsageError

PROGRAM, VARIABLE = "recsmith", "_RECSMITH_COMPLETE"
COST_MODELS = ("best", "fitted", "analytic", "torchrec", "neural:cpu", "neural:h100", "neural:h200",
               "neural:simulated-h100")  # fmt: skip
OPTIMIZERS = ("sgd", "adagrad", "rowwise_adagrad", "partial_rowwise_adam", "adam", "lamb")
PER_HOST = (1, 2, 4, 8, 16)
FILES = CompletionItem("", type="file")  # makes the shell offer its own file names
PATHS = ("FILE", "FOLDER", "DIR", "PLAN", "OTHER", "OLD", "NEW", "RUN", "MODEL", "TRACE", "DATA", "OUT", "PATH", "W",
         "NAME.safetensors")  # fmt: skip
Offered = Callable[[str], list[CompletionItem]]
BASH = r"""%(complete_func)s() {
    local IFS=$'\n' line="${COMP_LINE:0:COMP_POINT}" response item files= each
    local -a words
    IFS=$' \t' read -ra words <<< "$line"
    local count=${#words[@]} current=
    if [[ $line == *[^[:space:]] ]]; then
        count=$((count - 1))
        current="${words[count]}"
    fi
    response=$(env COMP_WORDS="$line" COMP_CWORD=$count %(complete_var)s=bash_complete "$1")
    COMPREPLY=()
    for item in $response; do
        if [[ ${item%%%%,*} == plain ]]; then
            COMPREPLY+=("${item#*,}")
        else
            files=1
        fi
    done
    if [[ -n $files && ${#COMPREPLY[@]} == 0 ]]; then
        compopt -o default
    elif [[ -n $files ]]; then
        COMPREPLY+=($(compgen -f -- "$current"))
    fi
    if [[ $current == *:* && $COMP_WORDBREAKS == *:* ]]; then
        for each in "${!COMPREPLY[@]}"; do
            COMPREPLY[each]="${COMPREPLY[each]#"${current%%"${current##*:}"}"}"
        done
    fi
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class OwnBash(BashComplete):
    """Completion for Bash, with a script that keeps words with colons whole and offers names and files together."""

    source_template = BASH


def script(shell: str) -> str:
    """The script that makes a shell complete the words of `recsmith`."""
    found = OwnBash if shell == "bash" else get_completion_class(shell)
    if found is None:
        raise UsageError(f"the words of {shell} are not completed; write bash, zsh or fish")
    return found(click.Group(), {}, PROGRAM, VARIABLE).source()


def complete(app: click.Group, instruction: str) -> int:
    """Print the completions for a shell, which passes its words in the environment, as click's scripts do."""
    add_completion_class(OwnBash)
    teach(app)
    return shell_complete(app, {}, PROGRAM, VARIABLE, instruction)


def teach(group: click.Group) -> None:
    """Make the commands of a group offer names and files; a command that is imported later is extended then."""
    find = group.get_command

    def taught(context: click.Context, name: str) -> click.Command | None:
        found = find(context, name)
        if isinstance(found, click.Group):
            teach(found)
        for parameter in found.params if found else ():
            offer = _commands(group.list_commands(context)) if parameter.name == "words" else offered_of(parameter)
            if offer is not None:
                vars(parameter)["shell_complete"] = _answering(offer)
        return found

    vars(group)["get_command"] = taught


def offered_of(parameter: click.Parameter) -> Offered | None:
    """What is offered for a parameter; None if click completes it itself, as for choices."""
    named = NAMED.get(parameter.name or "")
    if named is not None and not isinstance(parameter.type, click.Choice):
        return named
    if not isinstance(parameter.type, click.types.StringParamType):
        return None
    first = (parameter.metavar or "").replace("|", ",").replace("[", ",").split(",")[0].removesuffix("...")
    takes_path = isinstance(parameter, click.Argument) or first in PATHS or first.startswith(("FILE", "OUTPUT"))
    return _files if takes_path else None


def _answering(offer: Offered) -> Callable[..., list[CompletionItem]]:
    def answer(_: click.Context, incomplete: str) -> list[CompletionItem]:
        return offer(incomplete)

    return answer


def _files(_: str) -> list[CompletionItem]:
    return [FILES]


def _workloads(incomplete: str) -> list[CompletionItem]:
    folder = resources.files("recsmith.workloads") / "builtin"
    found = (each.name.rpartition(".") for each in folder.iterdir())
    names = (name for name, _, kind in found if kind in ("yaml", "json"))
    return [*_beginning(sorted(names), incomplete), FILES]


def _clusters(incomplete: str) -> list[CompletionItem]:
    """Clusters as device and devices per host, once the word names one device; before that, devices and files."""
    device, colon, _ = incomplete.partition(":")
    found = [name for name in DEVICES if name.startswith(device)]
    if colon or found == [device]:
        return _beginning([f"{device}:{count}" for count in PER_HOST], incomplete)
    return [*(CompletionItem(name) for name in found), FILES]


def _commands(names: Sequence[str]) -> Offered:
    return lambda incomplete: _beginning(names, incomplete)


def _names(group: str, own: Sequence[str]) -> Offered:
    def offer(incomplete: str) -> list[CompletionItem]:
        return _listed(sorted({*own, *_plugins.plugin_names(group)}), incomplete)

    return offer


def _listed(names: Sequence[str], incomplete: str) -> list[CompletionItem]:
    """Names that continue the last entry of a list with commas, without the names already in the list."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    return [CompletionItem(f"{before}{comma}{name}") for name in names if name.startswith(last) and name not in taken]


def _beginning(names: Sequence[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _of(names: Sequence[str]) -> Offered:
    return lambda incomplete: _listed(names, incomplete)


NAMED: dict[str, Offered] = {
    "workload": _workloads, "job": _workloads, "cluster": _clusters, "device": _clusters,
    "planner": _names(_plugins.PLANNERS, PLANNERS), "planners": _names(_plugins.PLANNERS, PLANNERS),
    "cost_model": _names(_plugins.COST_MODELS, COST_MODELS), "judges": _names(_plugins.COST_MODELS, COST_MODELS),
    "types": _of(TYPES), "kernels": _of(KERNELS), "optimizer": _of(OPTIMIZERS),
}  # fmt: skip
