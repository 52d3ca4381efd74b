"""Exponentials, logarithms, powers and products of matrices that have the same bits on every processor.

NumPy's own take other formulas where a processor has AVX-512, the C library's where it has FMA, and BLAS adds up a
product in the order that suits a processor; their last bits differ. What decides on a plan, or draws data, uses these.
They are made of sums, products, quotients and square roots, which IEEE 754 rounds in one way, each an operation of
NumPy by itself, so that no compiler fuses two. The formulas are those of fdlibm (Sun Microsystems, 1993), right to one
or two units in the last place. Compiled code (`_elementary.c`, planners/elementary.h) gives the same bits, for small
arrays in a twentieth of the time, and answers where the package was built with a C compiler.
"""

from importlib import import_module
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from recsmith._types import Floats

__all__ = ["distinct", "exp", "expm1", "log", "log1p", "log2", "log10", "matmul", "power", "sigmoid", "tanh"]

Numbers = npt.ArrayLike
Scalar = TypeVar("Scalar", bound=np.generic)

LN2 = 0.6931471805599453
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # of 32 bits, and what is left
LN10, INVERSE_LN2 = 2.302585092994046, 1.4426950408889634
LEAST_NORMAL = 2.0**-1022  # numbers below it have fewer bits
FRACTION_BITS, ROOT_HALF_BITS = 52, 0x3FE6A09E667F3BCD  # of a double; a double of root 1/2, read as a whole number
LOG_TERMS = (  # of log((1 + s) / (1 - s)) - 2 s, in powers of s ** 2
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
    1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01,
)  # fmt: skip
EXP_TERMS = (  # of r (exp(r) + 1) / (exp(r) - 1) - 2, in powers of r ** 2
    1.66666666666666019037e-01, -2.77777777770155933842e-03, 6.61375632143793436117e-05, -1.65339022054652515390e-06,
    4.13813679705723846039e-08,
)  # fmt: skip
LARGEST, SMALLEST = 710.0, -746.0  # exponents at which exp is infinity, and 0
ALL_LOST = -45.0  # exp of it is nothing beside 1

try:
    COMPILED: Any = import_module("recsmith._elementary")
except ImportError:  # there was no C compiler
    COMPILED = None


def distinct(values: npt.NDArray[Scalar], axis: int | None = None) -> npt.NDArray[Scalar]:
    """Each of some values once, in rising order, or each row along an axis.

    That is np.unique, which without the counts would load masked arrays at its first call: 9 ms of every command.
    """
    return np.unique(values, return_counts=True, axis=axis)[0]


def exp(x: Numbers) -> Floats:
    """E ** x."""
    x = np.asarray(x, np.float64)
    if (known := _known("exp", x)) is not None:
        return known
    k, more = _grown(x, SMALLEST)
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(1 + more, k)


def log(x: Numbers) -> Floats:
    """The natural logarithm: that of a power of 2, and that of what is left, from root 1/2 to root 2."""
    x = np.asarray(x, np.float64)
    if (known := _known("log", x)) is not None:
        return known
    if not ((x >= LEAST_NORMAL) & (x < np.inf)).all():
        return _any_log(x)
    k, f = _parts(x)
    return _log(f, k * LN2_LOW) + k * LN2_HIGH


def log2(x: Numbers) -> Floats:
    """The logarithm to base 2 of normal numbers above 0; whole numbers of powers of 2."""
    k, f = _parts(np.asarray(x, np.float64))
    return k + _log(f, 0.0) * INVERSE_LN2


def log10(x: Numbers) -> Floats:
    """The logarithm to base 10."""
    return log(x) / LN10


def log1p(x: Numbers) -> Floats:
    """log(1 + x), right for small x, too (Kahan)."""
    x = np.asarray(x, np.float64)
    if (known := _known("log1p", x)) is not None:
        return known
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        more = 1 + x
        found = log(more) * (x / (more - 1))
        return np.where(more == 1, x, np.where(more < np.inf, found, more))[()]


def expm1(x: Numbers) -> Floats:
    """exp(x) - 1, right for small x, too."""
    x = np.asarray(x, np.float64)
    if (known := _known("expm1", x)) is not None:
        return known
    k, more = _grown(x, ALL_LOST)
    with np.errstate(over="ignore"):
        return np.ldexp(more + (1 - np.ldexp(1.0, -k)), k)


def power(base: Numbers, exponent: Numbers) -> Floats:
    """Base ** exponent of bases of 0 or more, right to |exponent * log(base)| units in the last place."""
    return exp(np.asarray(exponent, np.float64) * log(base))


def tanh(x: Numbers) -> Floats:
    """The hyperbolic tangent."""
    x = np.asarray(x, np.float64)
    less = expm1(-2 * np.abs(x))
    return np.copysign(less / (2 + less), x)


def sigmoid(x: Numbers) -> Floats:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + exp(-np.asarray(x, np.float64)))


def matmul(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Left @ right of (..., k) and a matrix (k, n) or a vector (k,), with no product of BLAS.

    Each number is added up in the order of k, whatever n is. But where numbers of a column lie side by side, as in a
    vector, in a transposed matrix and in one column alone, NumPy adds up several series of them beside each other.
    """
    return np.einsum("...k,kn->...n" if right.ndim > 1 else "...k,k->...", left, right)


def _known(function: str, x: Floats) -> Floats | None:
    """What compiled code answers; None where there is none, or it leaves these numbers to the code here.

    Numbers that do not lie side by side are left, since answers lie as NumPy would lay them, and sums follow that.
    """
    if COMPILED is None or not x.flags.forc:
        return None
    answers = np.empty_like(x)
    given = (x, answers) if x.flags.c_contiguous else (x.T, answers.T)
    return (answers if x.ndim else answers[()]) if getattr(COMPILED, function)(given) else None


def _grown(x: Floats, least: float) -> tuple[npt.NDArray[np.int32], Floats]:
    """k, m of exp(x) = 2 ** k (1 + m): m is exp(r) - 1 of an r within ln(2) / 2 of 0. x: at least `least`, or that."""
    with np.errstate(invalid="ignore"):
        x = np.clip(x, least, LARGEST)
        k = np.rint(x * INVERSE_LN2)
        high, low = x - k * LN2_HIGH, k * LN2_LOW
        r = high - low
        less = r - _series(EXP_TERMS, r * r)
        return k.astype(np.int32), high - (low - (r * less) / (2 - less))


def _series(terms: tuple[float, ...], x: Floats) -> Floats:
    """X (terms[0] + x (terms[1] + ...))."""
    total = x * terms[-1]
    for term in reversed(terms[:-1]):
        total += term
        total *= x
    return total


def _any_log(x: Floats) -> Floats:
    """The logarithms of numbers of which some are 0, too small to be normal, below 0, or no numbers."""
    normal = np.where((x >= LEAST_NORMAL) & (x < np.inf), x, 1.0)
    tiny = np.where((x > 0) & (x < LEAST_NORMAL), x, 2.0**-54) * 2.0**54
    rest = np.select([x > 0, x == 0, x < 0], [np.where(x < np.inf, 0.0, x), -np.inf, np.nan], x)
    return np.where(x < LEAST_NORMAL, np.where(x > 0, log(tiny) - 54 * LN2, rest), log(normal) + rest)


def _parts(x: Floats) -> tuple[Floats, Floats]:
    """k, f of x = 2 ** k (1 + f), where 1 + f lies from root 1/2 to root 2. x: normal numbers above 0."""
    bits = x.view(np.int64)
    k = (bits - ROOT_HALF_BITS) >> FRACTION_BITS
    return k.astype(np.float64), (bits - (k << FRACTION_BITS)).view(np.float64) - 1


def _log(f: Floats, low: Floats | float) -> Floats:
    """log(1 + f) + low."""
    s, half = f / (2 + f), f * f / 2
    return f - (half - (s * (half + _series(LOG_TERMS, s * s)) + low))
