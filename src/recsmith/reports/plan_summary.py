"""A plan in five lines: tables and file, step time, bound, slowest rank, and how far to trust the prediction."""

from rich.console import Group

from recsmith.costs.published import error_of
from recsmith.planning.stashing import exposed_copies_s
from recsmith.plans import Plan
from recsmith.plans.predicted_error import PublishedError
from recsmith.reports.layout import BAD, GOOD, WATCH, line
from recsmith.reports.plan_words import (
    inexact_words,
    layers_words,
    overfull_words,
    rest_words,
    wide_text,
    with_copies_words,
)
from recsmith.reports.plans import bound_words, model_words, slowest_of, slowest_words, tables_words
from recsmith.units import format_time, in_one_unit

# gaps: up to the first a plan counts as near the best; above the second a longer search may pay
NEAR, FAR = 0.05, 0.25
EXACT, ROUGH = 0.15, 0.5  # relative errors of the predicted step: green up to the first, red above the second
BALANCED, UNEVEN = 0.1, 0.5  # slowest rank over the mean: green up to the first, red above the second


def plan_summary(plan: Plan, written: str | None = None, left_out: tuple[str, ...] = ()) -> Group:
    """A plan in five lines, and a note for each thing that changes training or lengthens the step.

    written: the file that the plan was written to, if any. left_out: sentences on what the search left out.
    """
    error, slowest = error_of(plan), slowest_of(plan.cost, plan.cost_model)
    kept = f", written to {written}" if written else ""
    notes = [
        overfull_words(plan.cost),
        layers_words(plan),
        rest_words(plan),
        inexact_words(plan),
        wide_text(plan),
        *left_out,
    ]
    return Group(
        line("plan", f"{tables_words(plan)}; digest {plan.digest[:16]}{kept}"),
        line("step", step_words(plan, error)),
        line("bound", bound_words(plan).splitlines()[0], _meaning(plan.gap, NEAR, FAR)),
        line("slowest", slowest_words(slowest), _meaning(slowest.over_mean, BALANCED, UNEVEN)),
        line("trust", trust_words(plan, error), WATCH if error.unchecked else _meaning(error.share, EXACT, ROUGH)),
        *(line("note", text) for text in notes if text),
    )


def step_words(plan: Plan, error: PublishedError) -> str:
    """The predicted step time, and its likely range by measured prediction errors."""
    step = f"{with_copies_words(plan, plan.cost.step_s)} predicted"
    if not error.share:
        return f"{step}; how far it may be off is not known"
    apart = "; without copies " if exposed_copies_s(plan) else ", "
    return f"{step}{apart}{typical_words(plan, error)}"


def typical_words(plan: Plan, error: PublishedError) -> str:
    """The step's likely range, if the prediction errs as much as was measured: 'typically 1.602 to 1.914 ms'."""
    low, high = in_one_unit([format_time(each) for each in error.interval(plan.cost.step_s)])
    return f"typically {low.partition(' ')[0]} to {high}{', perhaps further off' if error.unchecked else ''}"


def trust_words(plan: Plan, error: PublishedError) -> str:
    """How large the prediction error is, and why."""
    off = "not checked as a whole" if error.unchecked else f"off by about {error.off}"
    return f"{off}, cost model {model_words(plan.cost_model, plan)}: {error.reasons}"


def _meaning(share: float | None, good: float, bad: float) -> str:
    return WATCH if share is None else GOOD if share <= good else BAD if share > bad else WATCH
