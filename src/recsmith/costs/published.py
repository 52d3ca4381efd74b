"""Errors of predictions by part of a step and device, for all cost models by one rule.

The error of a learned model's kernels is that of groups that training never saw, from its card. The error of formulas'
kernels is that on the same samples, from the card of the device's model, or else by times that others have published.
Links are those of `analytic`, with errors by published times. Everything else is unchecked: its error may be larger.

The figures are data: cards are stored beside the weights, and weights/published-times.json is the result of
benchmarks/public_gpu.py for its list; tests keep them equal.

Legend: N pieces, W ranks; the four parts of a step are recsmith.plans.PARTS.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from recsmith._types import Floats, noun
from recsmith.clusters import Device
from recsmith.costs.analytic import AnalyticCostModel, AnalyticEvaluator
from recsmith.costs.best import BestCostModel
from recsmith.costs.fitted import FittedCostModel
from recsmith.costs.fitted_kernels import FITTED_TO, FittedKernels
from recsmith.costs.neural.evaluator import NeuralEvaluator
from recsmith.costs.neural.files import Card, find_model, load_model, shipped_cards
from recsmith.costs.neural.model import SIMULATED, is_device
from recsmith.costs.pricing import device_parts
from recsmith.costs.protocol import Evaluator, parts_of
from recsmith.costs.weight_files import PREFIX, data_file
from recsmith.errors import RecSmithError
from recsmith.files import built, check_schema, parse_json
from recsmith.plans import Placement, Plan
from recsmith.plans.predicted_error import (
    COLLECTIVES,
    DEVICE,
    DISK,
    HOST,
    LEARNED,
    PublishedError,
    PublishedTimes,
)
from recsmith.problems import footprint_of
from recsmith.sharding import KERNELS, KEY_VALUE, UVM, UVM_CACHING

ANALYTIC, FITTED = AnalyticCostModel.name, FittedCostModel.name
OURS = (ANALYTIC, FITTED)
FITTED_DEVICE = f"{DEVICE}, {FITTED}"  # key of the published times for cost model `fitted`
LARGE_BYTES = 2**20  # least large message; smaller ones are latency, which the model overestimates by packing kernels
LEAST_SHARE = 1e-9  # least share of learned kernels in compute seconds; less is rounding
PUBLISHED_TIMES, SCHEMA = "published-times.json", "recsmith/published-times/1"

_PLACES = {UVM.name: HOST, UVM_CACHING.name: HOST, KEY_VALUE.name: DISK}


@noun
class _Published:
    """The figures of weights/published-times.json, by part and device."""

    parts: dict[str, dict[str, PublishedTimes]]


@cache
def published() -> dict[str, dict[str, PublishedTimes]]:
    """Published times compared with cost model `analytic`, by part of a step and device."""
    path = data_file(PUBLISHED_TIMES)
    raw: Any = parse_json(path.read_text(), str(path))
    return built(_Published, check_schema(raw, SCHEMA, str(path))).parts


@cache
def measured() -> dict[str, PublishedTimes]:
    """Errors of `analytic`'s kernels on tables in device memory, from the cards of GPU models, by name of the model."""
    found = {name: _beside(card, ANALYTIC) for name, card in shipped_cards().items() if card.hardware == "cuda"}
    return {name: each for name, each in found.items() if each}


def error_of(plan: Plan) -> PublishedError:
    """The likely error of a plan's step: the stored one, or computed if the plan stores none."""
    return plan.error or _error(plan.cost_model, None, plan.cluster.device, plan.placements, parts_of(plan.cost), {})


def error_under(
    evaluator: Evaluator, cost_model: str, placements: tuple[Placement, ...], parts: Floats
) -> PublishedError:
    """The likely error of a step priced by an evaluator of a cost model, from its parts (W, 4)."""
    device = evaluator.problem.cluster.device
    if not isinstance(evaluator, NeuralEvaluator):
        return _error(cost_model, evaluator, device, placements, parts, {})
    by_formula, fitted = formula_seconds(evaluator, placements), leaves_to_fitted(evaluator, placements)
    return _error(cost_model, evaluator, device, placements, parts, by_formula, fitted)


def formula_seconds(evaluator: NeuralEvaluator, placements: tuple[Placement, ...]) -> dict[str, float]:
    """Seconds on all ranks of kernels left to formulas by a learned model, by part; launches too if it leaves all."""
    problem = evaluator.problem
    placed = footprint_of(problem, placements)
    seconds = evaluator.formula_seconds(placed.mode, placed.width) * problem.modes.coverage[placed.mode]
    kernels = problem.modes.kernel[placed.mode]
    found: dict[str, float] = {DEVICE: 0.0, HOST: 0.0, DISK: 0.0}
    for kernel in KERNELS:
        found[_place(kernel.name)] += float(seconds[kernels == kernel.number].sum())
    found = {part: each for part, each in found.items() if each}
    if (evaluator.covered if evaluator.share is None else evaluator.share > 0)[placed.mode].any():
        return found
    launches = device_parts(evaluator, placed)[:, :2].sum() - sum(found.values())
    return {part: each + launches / len(found) for part, each in found.items()}


def leaves_to_fitted(evaluator: NeuralEvaluator, placements: tuple[Placement, ...]) -> bool:
    """Whether a learned model leaves kernels to fitted formulas, and not only kernels that these do not price."""
    kernels = evaluator.formulas.kernels if evaluator.formulas else None
    if not isinstance(kernels, FittedKernels):
        return False
    placed = footprint_of(evaluator.problem, placements)
    plain = kernels.plain[placed.mode]
    return bool(evaluator.formula_seconds(placed.mode[plain], placed.width[plain]).any())


def _error(
    cost_model: str,
    evaluator: Evaluator | None,
    device: Device,
    placements: Iterable[Placement],
    parts: Floats,
    by_formula: Mapping[str, float],
    left_fitted: bool = False,
) -> PublishedError:
    forward_compute, backward_compute, forward_comm, backward_comm = parts.sum(axis=0).tolist()
    compute, comm = forward_compute + backward_compute, forward_comm + backward_comm
    card, formula = _learned(cost_model, evaluator, device), _formula(cost_model, evaluator, device)
    if card:
        seconds = dict[str, float](by_formula)
        learned = compute - sum(seconds.values())
        seconds |= {LEARNED: learned} if learned > compute * LEAST_SHARE or not seconds else {}
        order = [part for part in (LEARNED, DEVICE, HOST, DISK) if part in seconds]
        beside = FITTED if left_fitted else ANALYTIC
        seen = {part: _held_out(card) if part == LEARNED else _rest(part, device, card, beside) for part in order}
    else:
        places = {_place(placement.compute_kernel) for placement in placements}
        seen = {part: _seen(part, device, formula) for part in (DEVICE, HOST, DISK) if part in places}
        worst = max(seen, key=lambda part: _off_by(part, seen[part], formula), default=DEVICE)
        seconds = {part: compute if part == worst else 0.0 for part in seen}
    if comm:
        seconds[COLLECTIVES] = comm
        seen[COLLECTIVES] = _seen(COLLECTIVES, device, formula)
    whole = sum(seconds.values()) or 1.0

    def weighed(spread: bool) -> float:
        return sum(each * _off_by(part, seen[part], formula, spread) for part, each in seconds.items()) / whole

    return PublishedError(
        device=device.name,
        checked={part: found for part, found in seen.items() if found},
        unchecked=tuple(part for part, found in seen.items() if not found),
        share=weighed(spread=False), spread=weighed(spread=True),
        known_by=_known_by(device) if cost_model in (ANALYTIC, FITTED) and not card and DEVICE in seen else "",
        scaled_from=FITTED_TO if formula == FITTED and DEVICE in seen and not _card_of(device) else "",
    )  # fmt: skip


# --- which cost model prices the plan --------------------------------------------------------------------------------


def _learned(cost_model: str, evaluator: Evaluator | None, device: Device) -> Card | None:
    """The card of the model that learned from measurements and prices the plan; None if formulas price it."""
    if evaluator is not None:
        card = evaluator.card if isinstance(evaluator, NeuralEvaluator) else None
    elif cost_model == BestCostModel.name:
        card = _card_of(device)
    elif cost_model.startswith(PREFIX):
        try:
            card = load_model(find_model(cost_model.removeprefix(PREFIX)))[1]
        except RecSmithError:
            return None  # a plan of a model that is not installed here
    else:
        return None
    return None if card is None or card.hardware.startswith(SIMULATED) else card


def _formula(cost_model: str, evaluator: Evaluator | None, device: Device) -> str:
    """The cost model whose formulas price what was not measured: `fitted`, `analytic`, or the model itself."""
    if isinstance(evaluator, NeuralEvaluator):
        evaluator = evaluator.formulas or evaluator.analytic
    if isinstance(evaluator, AnalyticEvaluator):
        return FITTED if isinstance(evaluator.kernels, FittedKernels) else ANALYTIC
    if cost_model == BestCostModel.name:
        return FITTED if device.kind == "cuda" else ANALYTIC
    return ANALYTIC if cost_model.startswith(PREFIX) else cost_model


def _card_of(device: Device) -> Card | None:
    """The card of the learned model shipped for a device."""
    cards = (card for card in shipped_cards().values() if not card.hardware.startswith(SIMULATED))
    return next((card for card in cards if is_device(card.hardware, card.device, device)), None)


def _known_by(device: Device) -> str:
    found = _card_of(device)
    return next((f"{PREFIX}{name}" for name, card in shipped_cards().items() if card is found), "") if found else ""


# --- what is known of a part -----------------------------------------------------------------------------------------


def _place(kernel: str) -> str:
    return _PLACES.get(kernel, DEVICE)


def _held_out(card: Card) -> PublishedTimes:
    return PublishedTimes(figures=card.held_out.samples, laboratories=0, error=card.held_out.median)


def _beside(card: Card, formula: str) -> PublishedTimes | None:
    """The error of a formula cost model on the samples of a card."""
    found = card.beside.get(formula)
    if found is None:
        return None
    if formula == FITTED:
        return PublishedTimes(figures=found.samples, laboratories=0, error=round(found.spread, 2))
    return PublishedTimes(
        figures=card.samples, laboratories=0, error=round(found.factor - 1, 2), spread=round(found.spread, 2)
    )


def _rest(part: str, device: Device, card: Card, formula: str) -> PublishedTimes | None:
    """The error of formula kernels next to learned ones: the card's factor is applied, so only a spread remains."""
    if part != DEVICE:
        return _seen(part, device, formula)
    found = _beside(card, formula)
    return found and PublishedTimes(figures=found.figures, laboratories=0, error=found.spread or found.error)


def _seen(part: str, device: Device, formula: str) -> PublishedTimes | None:
    """The known error of a part under a formula cost model; links of models other than ours were never checked."""
    card = _card_of(device) if part == DEVICE else None
    found = _beside(card, formula) if card else None
    return found or (published().get(_listed(part, formula), {}).get(device.name) if formula in OURS else None)


def _listed(part: str, formula: str) -> str:
    """The key of a part's published times under a cost model."""
    return FITTED_DEVICE if part == DEVICE and formula == FITTED else part


def _off_by(part: str, seen: PublishedTimes | None, formula: str, spread: bool = False) -> float:
    if seen is None:
        return _elsewhere(_listed(part, formula)) if formula in OURS else 0.0
    return seen.spread or abs(seen.error) if spread else abs(seen.error)


def _elsewhere(part: str) -> float:
    """The mean error of a part over all devices, weighted by figures; for tables on disk, of tables in host memory."""
    found = published().get(part, published()[HOST]).values()
    return sum(each.figures * each.error for each in found) / sum(each.figures for each in found)
