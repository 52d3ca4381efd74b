"""Learned models as lines: cost models, models of all-to-alls, placement policies, and machines."""

from recsmith.costs.neural.files import Card, NoiseFloor
from recsmith.costs.neural.inputs import Region
from recsmith.costs.neural_comm_files import CommCard, CommHeldOut
from recsmith.planners.placing.policy_files import PolicyCard
from recsmith.planners.placing.split_policy import SplitCard
from recsmith.prediction.machine import MachineCard
from recsmith.prediction.overheads import ALL, WHAT
from recsmith.reports.layout import plain_grid, plain_line
from recsmith.units import counted, format_size, format_speed, format_time

LABEL_WIDTH = 10  # characters of a label: wider than in other reports, for `held out` and two spaces


def cost_card_lines(card: Card) -> list[str]:
    """What a cost model was trained on, and its error on held-out groups of tables."""
    off = card.held_out
    return [
        _line("device", f"{card.device} ({card.hardware})"),
        _line("samples", f"{card.samples:,}, {card.left_out:,} left out (docs/learning.md says why)"),
        _line("trained", f"{card.train:,} groups, {card.epochs} epochs, {card.variant}"),
        _line(
            "held out",
            f"{off.median:.1%} median, {off.mean:.1%} mean error of {off.samples:,} groups; tau {off.tau:.3f}",
        ),
        _line("parts", f"{off.forward_median:.1%} forward, {off.backward_median:.1%} backward (medians)"),
        _line("noise", f"{_noise_words(card.noise)}: what two samples of one case differ by"),
        *([_line("regions", "mean error, by the heaviest table of a group"), *map(region_line, card.regions)]
          if card.regions else []),
    ]  # fmt: skip


def region_line(region: Region) -> str:
    """The errors in a region of the inputs, and the groups that it holds."""
    return f"  {region.mean:>6.1%} ({region.bias:+.1%}) of {region.samples:,} groups: {region.name}"


def comm_card_lines(card: CommCard) -> list[str]:
    """What a model of all-to-alls was trained on, and its error for each number of ranks."""
    return [
        _line("device", f"{card.device} ({card.hardware}, {card.backend})"),
        _line("samples", f"{card.exchanges:,}, {card.left_out:,} left out (docs/learning.md says why)"),
        _line("trained", f"{card.train:,} exchanges of {', '.join(map(str, card.ranks))} ranks, {card.epochs} epochs"),
        _line("noise", f"{_noise_words(card.noise)}: what two measurements of a rank differ by"),
        "",
        "ranks  exchanges  median    mean  of alpha-beta and the wait",
        *(_ranks_line(each) for each in card.held_out),
    ]


def policy_card_lines(card: PolicyCard) -> list[str]:
    """What a placement policy was trained on, and how it does on held-out tables."""
    held, turns = card.held_out, counted(card.iterations, "iteration")
    ahead = held.greedy_step_s / held.step_s - 1
    return [
        _line("device", f"{card.device} ({card.hardware})"),
        _line("trained", f"{card.tasks} tasks of {card.tables} tables on {counted(card.devices, 'device')}"),
        *_own_line(card),
        _line("", f"{card.measured:,} placements measured, {turns}, {card.reward} rewards"),
        _line("held out", f"{held.tasks} tasks of unseen tables: steps of {format_time(held.step_s)}, mean"),
        _line("", f"{held.best_greedy}, the best classic greedy, takes {ahead:+.1%}"),
        _line("", f"steps are predicted within {held.predicted_off:.1%} (median)"),
    ]


def _own_line(card: PolicyCard | SplitCard) -> list[str]:
    """Where the training tasks' tables come from, if the user gave them."""
    return [] if card.own is None else [_line("tables", f"half of those of {card.own}; the others judge")]


def split_card_lines(card: SplitCard) -> list[str]:
    """What a policy that decides splits was trained on, and how it does on held-out tables."""
    turns, judged = counted(card.iterations, "iteration"), counted(card.judged, "task")
    return [
        _line("priced by", f"{card.cost_model} ({card.device}); nothing is measured"),
        _line("trained", f"{counted(card.tasks, 'task')} of {', '.join(card.sizes)}; {turns}"),
        *_own_line(card),
        _line("held out", f"{judged} of unseen tables: steps beside longest-first's {0 - card.ahead:+.1%}"),
    ]


def _line(label: str, text: str) -> str:
    return plain_line(label, text, LABEL_WIDTH)


def _noise_words(noise: NoiseFloor) -> str:
    return f"{noise.median:.1%} median, {noise.mean:.1%} mean of {noise.pairs} pairs" if noise.pairs else "unknown"


def _ranks_line(off: CommHeldOut) -> str:
    errors = f" {off.median:>7.1%} {off.mean:>7.1%}  {off.alpha_beta_median:.1%} median, {off.alpha_beta_mean:.1%} mean"
    return f"{off.ranks:>5}{off.exchanges:>11,}{errors}{'' if off.trained else '; never trained on'}"


def machine_lines(card: MachineCard) -> list[str]:
    """Errors of the kernel models, curves of collectives, and overheads over all operators."""
    kernels = [("kernels", "trained", "held out", "error", "roofline alone")]
    for kind in card.kernels:
        off = (f"{kind.error:.1%}", f"{kind.roofline_error:.1%}")
        kernels.append((kind.kind, f"{kind.trained:,}", f"{kind.held_out:,}", *off))
    curves = [("collectives", "ranks", "latency", "up to", "bandwidth", "error")]
    for each in card.curves:
        first = (format_time(each.latency_s), format_size(each.small), format_speed(each.bytes_per_s))
        curves.append((each.name, str(each.ranks), *first, f"{each.error:.1%}"))
    overheads = [("overheads", "mean", "spread", "seen")]
    for each in card.overheads.overheads:
        if each.operator == ALL:
            times = (format_time(each.mean_s), format_time(each.spread_s))
            overheads.append((f"{each.term} {WHAT[each.term]}", *times, f"{each.count:,}"))
    title = [f"{card.device}; {card.versions}", "errors are geometric means over held-out kernels and sizes"]
    return [*title, "", *plain_grid(kernels), "", *plain_grid(curves), "", *plain_grid(overheads)]
