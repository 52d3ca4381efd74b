"""Objectives of advice (time of a step, devices, money or memory), and the limits that a job has to keep."""

import re
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from recsmith._types import noun
from recsmith.analyses.paying import gain_of
from recsmith.errors import UsageError
from recsmith.units import format_time

Objective = Literal["step", "devices", "cost", "memory"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
NAMED: dict[Objective, str] = {
    "step": "the device time of a sample",
    "devices": "the devices that the same samples a second take",
    "cost": "the money that a sample costs",
    "memory": "the fullest device",
}
BILLION = 1_000_000_000  # samples for which a price in money is stated
HOUR_S = 3600.0
PRICE = re.compile(r"(?P<device>[\w.+-]+)=\$?(?P<dollars>\d+(\.\d+)?)/h")
RATE = re.compile(r"\$?(?P<dollars>\d+(\.\d+)?)/h")


@noun
class JobPrice:
    """The predicted time, memory and money of a job.

    step_s: seconds of a step. samples: samples per device and step. memory_bytes: memory of the fullest device. error:
    uncertainty of step_s, as a fraction of it. apart: the fraction of a step below which two prices cannot be told
    apart. devices: number of devices that train. dollars_per_hour: price of a device; None if not stated. whole:
    whether step_s covers the whole step; otherwise it covers the embeddings only.
    """

    step_s: float
    samples: int
    memory_bytes: int
    error: float
    apart: float = 0.0
    devices: int = 1
    dollars_per_hour: float | None = None
    whole: bool = True

    @property
    def sample_s(self) -> float:
        """Device seconds per sample."""
        return self.step_s / self.samples

    @property
    def dollars(self) -> float | None:
        """Dollars for a billion samples; None if the price of a device is not stated."""
        return self.dollars_per_hour and self.sample_s * BILLION * self.dollars_per_hour / HOUR_S


@noun
class Aim:
    """What a job should have less of, and its limits.

    step_under_s: the longest step that is allowed, in seconds. budget: dollars per hour that all devices together may
    cost. prices: dollars per hour of a device, by name of the device.
    """

    objective: Objective = "step"
    step_under_s: float | None = None
    budget: float | None = None
    prices: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for a time limit of 0 or below, or for an objective that needs prices without any."""
        if self.step_under_s is not None and not self.step_under_s > 0:
            raise UsageError(f"a step of {self.step_under_s} seconds cannot be; give a time above 0")
        if not self.prices and (self.objective == "cost" or self.budget is not None):
            what = "the objective cost" if self.objective == "cost" else "a budget"
            raise UsageError(f"{what} needs what a device costs; say so with --price h100=2.99/h")

    def price_of(self, device: str) -> float | None:
        """Dollars per hour of a device; None without prices, UsageError if the prices lack this device."""
        found = (self.prices or {}).get(device)
        if found is None and self.prices:
            raise UsageError(
                f"the job's devices are '{device}', and prices are of {', '.join(sorted(self.prices))}; "
                f"add --price {device}=DOLLARS/h"
            )
        return found

    def value(self, price: JobPrice) -> float:
        """The value of the objective, which should be small."""
        if self.objective == "memory":
            return float(price.memory_bytes)
        if self.objective == "cost":
            return price.dollars or 0.0
        return price.sample_s

    def gain(self, before: JobPrice, after: JobPrice) -> float:
        """The fraction of the objective that is saved; below 0 if `after` needs more."""
        return gain_of(self.value(before), self.value(after))

    def error(self, gain: float, *prices: JobPrice) -> float:
        """Uncertainty of a gain between prices: the gain times the relative error of a step, but at least `apart`.

        The largest error of the prices counts. Memory follows from shapes, so it has no error.
        """
        if self.objective == "memory":
            return 0.0
        return max(abs(gain) * max(each.error for each in prices), *(each.apart for each in prices))

    def over(self, price: JobPrice) -> str:
        """A sentence on a limit that a job breaks by more than the error of its step; '' if it may keep all."""
        if self.step_under_s is not None and price.step_s > self.step_under_s * (1 + price.error):
            return self._step_over(price)
        paid = price.devices * (price.dollars_per_hour or 0.0)
        if self.budget is not None and paid > self.budget:
            return f"{price.devices} devices cost ${paid:,.2f}/h, over the budget of ${self.budget:,.2f}/h"
        return ""

    def close(self, price: JobPrice) -> str:
        """A sentence on a step that is over its limit by no more than its error; '' if it is not such a case."""
        if self.step_under_s is None or not self.step_under_s < price.step_s <= self.step_under_s * (1 + price.error):
            return ""
        return (
            f"{self._step_over(price)} by {price.step_s / self.step_under_s - 1:.1%}, and a step may be off by "
            f"{price.error:.0%}"
        )

    def limit(self, before: JobPrice, after: JobPrice) -> str:
        """A sentence on the limit that `before` breaks and `after` keeps; '' if there is no such limit."""
        broken = self.over(before) or self.close(before)
        if not broken or self.over(after) or self.close(after):
            return ""
        if self.step_under_s is not None and before.step_s > self.step_under_s:
            return f"a step of {format_time(after.step_s)} keeps the {format_time(self.step_under_s)} that it may take"
        paid = after.devices * (after.dollars_per_hour or 0.0)
        return f"${paid:,.2f}/h keeps the budget of ${self.budget or 0.0:,.2f}/h"

    def _step_over(self, price: JobPrice) -> str:
        what = "a step takes" if price.whole else "embeddings alone take"
        return (
            f"{what} {format_time(price.step_s)}, over the {format_time(self.step_under_s or 0.0)} that a step may take"
        )


STEP = Aim()


def read_prices(texts: Sequence[str]) -> dict[str, float]:
    """Dollars per hour by device, from texts such as 'h100=2.99/h'; UsageError for other formats or a second price."""
    found: dict[str, float] = {}
    for text in texts:
        match = PRICE.fullmatch(text)
        if match is None:
            raise UsageError(
                f"'{text}' is no price; prices are dollars an hour of a device, such as h100=2.99/h, and other money "
                "has to be changed into dollars first"
            )
        name, dollars = match["device"].lower(), float(match["dollars"])
        if name in found or not dollars:
            raise UsageError(f"'{text}' is a second or an empty price of '{name}'; give one above 0 for each device")
        found[name] = dollars
    return found


def read_budget(text: str) -> float:
    """Dollars per hour, from a text such as '40/h'; UsageError for any other text."""
    match = RATE.fullmatch(text)
    if match is None or not float(match["dollars"]):
        raise UsageError(f"'{text}' is no budget; it is dollars an hour of all devices together, such as 40/h")
    return float(match["dollars"])
