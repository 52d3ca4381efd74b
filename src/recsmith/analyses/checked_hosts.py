"""Bounds for clusters of two hosts, split by the seconds in which pieces cover each host; a part of checking.py.

`covered` seconds of a host are the seconds that all pieces which cover the whole host take on each of its ranks in the
first phase, by one mix of planes. Hosts are alike, so it suffices to consider plans whose first host is covered for no
longer than the second. On a host, only `ready` less the covered seconds is left for pieces of single ranks; as these
belong to other groups, an opening is subtracted, too (docs/bounds.md). Seconds by the mix are rounded down once, so for
any plan they are no more than the plan's own seconds.

Legend: N pieces, T tables, G fusion groups, J planes.
"""

from dataclasses import replace
from fractions import Fraction
from math import fsum

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.analyses.checked_prices import (
    Plans,
    allowed_pieces,
    charged_prices,
    mix_of,
    step_seconds,
    table_prices,
)
from recsmith.analyses.checked_statement import EQUAL, NO_PLAN, Statement, at_most, double_below, products
from recsmith.errors import CorruptFile
from recsmith.plans.proofs import HostsProof, HostWorth, LeafProof, ProofPart, Shares

HOSTS = 2
MOST_TIMES = Fraction(1_000)  # largest factor on seconds of single-rank pieces; any from 1 to the exact one is valid
SLACK = 2.0**-32  # relative deduction from a piece's price on a host, which may be below 0: far above all roundings


def told_apart(statement: Statement, shares: tuple[Shares, ...]) -> Floats:
    """The mix of planes (G, J) by which two hosts are told apart.

    Raises:
        CorruptFile: there are not two equal hosts, or a group may hold both pieces of hosts and of single ranks.
    """
    problem, cluster, local = statement.problem, statement.problem.cluster, statement.local
    ranks, hosts = (_covering(statement, size) for size in (1, cluster.local_world_size))
    why = (
        "which are not two of several ranks" if cluster.hosts != HOSTS or cluster.local_world_size < 2
        else "whose ranks differ in memory" if len(set(problem.capacity.tolist())) > 1
        else "and tables are tied to ranks, or to each other" if problem.legality.open is not None
        or problem.constraints.between
        else "and prices are by levels" if statement.levels.paid
        else "and pieces cover other ranks than one or all of a host" if (local & ~ranks & ~hosts).any()
        else "and groups hold pieces of hosts and of ranks" if set(statement.group[hosts].tolist())
        & set(statement.group[ranks].tolist())
        else None
    )  # fmt: skip
    if why is not None:
        raise CorruptFile(f"the certificate tells hosts apart, {why}; write it anew")
    return mix_of(statement, shares)


def _covering(statement: Statement, size: int) -> Bools:
    """Which pieces (N,) cover exactly `size` ranks and do not span the world."""
    return statement.local & (statement.coverage == size)


def all_of(one: Plans, other: Plans) -> Plans:
    """A part that holds the plans of both parts."""
    (low, high), (other_low, other_high) = one.hosts, other.hosts
    return Plans(
        _hull(one.ready, other.ready), _hull(one.rest, other.rest), one.open | other.open, one.paid & other.paid,
        (_hull(low, other_low), _hull(high, other_high)),
    )  # fmt: skip


def _hull(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return min(one[0], other[0]), max(one[1], other[1])


def host_halves(plans: Plans, part: ProofPart, mix: Floats | None) -> tuple[Plans, Plans]:
    """The halves of a split by the covered seconds of a host.

    Raises:
        CorruptFile: hosts are not told apart, there is no such host, or the split is outside of its range.
    """
    if mix is None or part.of not in range(HOSTS):
        raise CorruptFile(f"the certificate splits seconds of host {part.of}, which is not told apart; write it anew")
    low, high = plans.hosts[part.of]
    if not low <= part.at <= high:
        raise CorruptFile(f"a range of {low} to {high} s is split at {part.at} s; write the certificate anew")
    first, second = list(plans.hosts), list(plans.hosts)
    first[part.of], second[part.of] = (low, part.at), (part.at, high)
    return replace(plans, hosts=tuple(first)), replace(plans, hosts=tuple(second))


def host_seconds(statement: Statement, plans: Plans, proof: HostsProof, mix: Floats | None) -> Fraction:
    """Lower bound in seconds on all plans of a part, by separate multipliers for each of two hosts.

    Raises:
        CorruptFile: hosts are not told apart, or there is no such plane.
    """
    if mix is None or (proof.plane is not None and not 0 <= proof.plane < statement.ready.shape[1]):
        raise CorruptFile("a proof of the certificate is of hosts or planes that are not there; write it anew")
    ranges = _ranges(plans)
    if any(low > high for low, high in ranges):
        return NO_PLAN
    seconds = products(statement.mixed.T, mix[statement.group].T)
    own = seconds if proof.plane is None else statement.ready[:, proof.plane]
    prices, total = np.full(len(seconds), np.inf), Fraction(0)
    for worth, covered in zip(proof.hosts, ranges, strict=True):
        more = step_seconds(plans, worth.steps) if worth.steps is not None else Fraction(0)
        prices = np.minimum(prices, _on_host(statement, plans, worth, covered, (seconds, own), more))
        total += min(Fraction(worth.own) * Fraction(end) for end in covered) - more
    least = np.where(plans.open, table_prices(statement, 0.0, mix, prices), np.inf).min(axis=1)
    if not np.isfinite(least).all():
        return NO_PLAN
    total /= HOSTS
    total += Fraction(float(np.nextafter(fsum(least.tolist()), -np.inf)))
    for name, ends in (("ready", plans.ready), ("rest", plans.rest)):
        mean = sum((Fraction(getattr(worth, name)) for worth in proof.hosts), Fraction(0)) / HOSTS
        total += min((1 - mean) * Fraction(end) for end in ends)
    return statement.certain(plans.paid) + max(total, Fraction(plans.ready[0]) + Fraction(plans.rest[0]))


def _ranges(plans: Plans) -> list[tuple[float, float]]:
    """Ranges of the covered seconds of both hosts, tightened: at most `ready`, and first host <= second host."""
    (low, high), (other_low, other_high) = plans.hosts
    other_high = min(other_high, plans.ready[1])
    return [(low, min(high, other_high)), (max(low, other_low), other_high)]


def _on_host(
    statement: Statement, plans: Plans, worth: HostWorth, covered: tuple[float, float], took: tuple[Floats, Floats],
    more: Fraction,
) -> Floats:  # fmt: skip
    """Prices (N,) of pieces on each rank of a host that they cover; infinite for pieces that may not be on it.

    If the host is covered by any piece, a rank with single-rank pieces opens two groups. `room` is at most `ready` less
    the covered seconds, and its single-rank pieces have `room` less an opening. So their seconds may be multiplied by
    room / (room - opening). took: seconds by the mix, and the seconds that decide which pieces are big. more: worth of
    whole width steps on a rank.
    """
    (least, most), (seconds, own), single = covered, took, _covering(statement, 1)
    room = Fraction(plans.ready[1]) - Fraction(least)
    left = room - (Fraction(statement.opening) if least > 0 else 0)
    times = max(double_below(min(room / left, MOST_TIMES)), 1.0) if left > 0 else 1.0
    longest = float(left) + EQUAL * plans.ready[1]
    allowed = allowed_pieces(statement, plans) & np.where(single, statement.alone <= longest, seconds <= most)
    counted = np.where(single, at_most(seconds * times, 1), seconds)
    first, last = at_most(worth.ready * counted, 1), at_most(worth.rest * statement.rest, 1)
    leaf = LeafProof(ready=worth.ready, rest=worth.rest, byte=0.0, mix=(), plane=0, steps=worth.steps)
    price = charged_prices(statement, plans, leaf, (first, last, own), allowed, more)
    cheaper, before = worth.own * seconds, np.where(allowed, price, 0.0)
    return np.where(single | ~allowed, price, before - cheaper - SLACK * (before + np.abs(cheaper)))
