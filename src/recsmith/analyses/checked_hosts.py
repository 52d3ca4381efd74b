"""What a certificate proves where two hosts are told apart, by how long pieces cover each; a part of checking.py.

Of the plans of a part only those matter whose first host is covered for less time than the second: hosts are alike, so
that is a matter of their names. `covered` seconds of a host are those that all pieces which cover it take of each of
its ranks in the first phase, by one mix of planes. So much of `ready` is left there for pieces of single ranks, and as
these are of other groups, less an opening (docs/bounds.md). What pieces take by the mix stands here for itself: it is
rounded down once, and what it says of any plan is no more than the plan's own seconds.

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
MOST_TIMES = Fraction(1_000)  # that seconds of pieces of ranks count: any number from 1 to the right one is valid
SLACK = 2.0**-32  # of the price of a piece on a host, which may be below 0: far more than all roundings add to it


def told_apart(statement: Statement, shares: tuple[Shares, ...]) -> Floats:
    """The mix of planes (G, J) by which two hosts are told apart.

    Raises:
        CorruptFile: hosts are not two and alike, or pieces of a host and of a rank may be of one group.
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
    """Pieces (N,) that do not span the world and cover so many ranks."""
    return statement.local & (statement.coverage == size)


def all_of(one: Plans, other: Plans) -> Plans:
    """A part that holds the plans of both."""
    (low, high), (other_low, other_high) = one.hosts, other.hosts
    return Plans(
        _hull(one.ready, other.ready), _hull(one.rest, other.rest), one.open | other.open, one.paid & other.paid,
        (_hull(low, other_low), _hull(high, other_high)),
    )  # fmt: skip


def _hull(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return min(one[0], other[0]), max(one[1], other[1])


def host_halves(plans: Plans, part: ProofPart, mix: Floats | None) -> tuple[Plans, Plans]:
    """Both halves of a split by how long pieces cover a host.

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
    """Seconds that no plan of a part takes less than, by what seconds are worth on each of two hosts.

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
    """Ranges of what covers both hosts: no more than `ready`, and of the first host no more than of the second."""
    (low, high), (other_low, other_high) = plans.hosts
    other_high = min(other_high, plans.ready[1])
    return [(low, min(high, other_high)), (max(low, other_low), other_high)]


def _on_host(
    statement: Statement, plans: Plans, worth: HostWorth, covered: tuple[float, float], took: tuple[Floats, Floats],
    more: Fraction,
) -> Floats:  # fmt: skip
    """The price (N,) of pieces on each rank that they cover of a host; infinite where they may not be on it.

    Where the host is covered at all, a rank that holds a piece of its own opens two groups. Of `ready` less what covers
    the host, at most `room`, its own pieces have the rest but for an opening; so their seconds may count as many times
    as the whole room is of that. took: seconds by the mix, and those by which it is decided which pieces are big.
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
