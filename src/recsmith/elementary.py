"""Exponentials, logarithms, powers and matrix products that give the same bits on every processor.

NumPy's own functions use other formulas on processors with AVX-512, the C library's on those with FMA, and BLAS sums a
product in an order that suits the processor; their last bits differ. Code that decides on a plan or draws data uses
this module. It uses only sums, products, quotients and square roots, which IEEE 754 rounds in one way, each as a
separate NumPy operation, so that no compiler fuses two. The formulas are those of fdlibm (Sun Microsystems, 1993),
accurate to one or two units in the last place. Compiled code (`_elementary.c`, planners/elementary.h) gives the same
bits, for small arrays in a twentieth of the time, and is used if the package was built with a C compiler.
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
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # the first 32 bits of ln 2, and the rest
LN10, INVERSE_LN2 = 2.302585092994046, 1.4426950408889634
LEAST_NORMAL = 2.0**-1022  # numbers below this are subnormal: they have fewer bits
FRACTION_BITS, ROOT_HALF_BITS = 52, 0x3FE6A09E667F3BCD  # fraction bits of a double; bits of sqrt(1/2) as a double
LOG_TERMS = (  # coefficients of log((1 + s) / (1 - s)) - 2 s, in powers of s ** 2
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
    1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01,
)  # fmt: skip
EXP_TERMS = (  # coefficients of r (exp(r) + 1) / (exp(r) - 1) - 2, in powers of r ** 2
    1.66666666666666019037e-01, -2.77777777770155933842e-03, 6.61375632143793436117e-05, -1.65339022054652515390e-06,
    4.13813679705723846039e-08,
)  # fmt: skip
LARGEST, SMALLEST = 710.0, -746.0  # exponents from which exp is infinity, and up to which it is 0
ALL_LOST = -45.0  # exp of this is lost when it is added to 1

try:
    COMPILED: Any = import_module("recsmith._elementary")
except ImportError:  # the package was built without a C compiler
    COMPILED = None


def distinct(values: npt.NDArray[Scalar], axis: int | None = None) -> npt.NDArray[Scalar]:
    """The different values in rising order, or the different rows along an axis.

    The same as np.unique, which without the counts would load masked arrays at its first call: 9 ms of every command.
    """
    return np.unique(values, return_counts=True, axis=axis)[0]


def exp(x: Numbers) -> Floats:
    """The exponential e ** x."""
    x = np.asarray(x, np.float64)
    if (known := _known("exp", x)) is not None:
        return known
    k, more = _grown(x, SMALLEST)
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(1 + more, k)


def log(x: Numbers) -> Floats:
    """The natural logarithm: of the power of 2 in x, plus that of the remaining factor from sqrt(1/2) to sqrt(2)."""
    x = np.asarray(x, np.float64)
    if (known := _known("log", x)) is not None:
        return known
    if not ((x >= LEAST_NORMAL) & (x < np.inf)).all():
        return _any_log(x)
    k, f = _parts(x)
    return _log(f, k * LN2_LOW) + k * LN2_HIGH


def log2(x: Numbers) -> Floats:
    """The logarithm to base 2 of normal numbers above 0; exact for powers of 2."""
    k, f = _parts(np.asarray(x, np.float64))
    return k + _log(f, 0.0) * INVERSE_LN2


def log10(x: Numbers) -> Floats:
    """The logarithm to base 10."""
    return log(x) / LN10


def log1p(x: Numbers) -> Floats:
    """log(1 + x), accurate also for small x (Kahan)."""
    x = np.asarray(x, np.float64)
    if (known := _known("log1p", x)) is not None:
        return known
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        more = 1 + x
        found = log(more) * (x / (more - 1))
        return np.where(more == 1, x, np.where(more < np.inf, found, more))[()]


def expm1(x: Numbers) -> Floats:
    """exp(x) - 1, accurate also for small x."""
    x = np.asarray(x, np.float64)
    if (known := _known("expm1", x)) is not None:
        return known
    k, more = _grown(x, ALL_LOST)
    with np.errstate(over="ignore"):
        return np.ldexp(more + (1 - np.ldexp(1.0, -k)), k)


def power(base: Numbers, exponent: Numbers) -> Floats:
    """The power base ** exponent of bases of 0 or more, right to |exponent * log(base)| last units; 0 ** 0 is NaN."""
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
    """The product left @ right of (..., k) with a matrix (k, n) or a vector (k,), without BLAS.

    Each number is summed in the order of k for any n, with one exception: if the numbers of a column are contiguous, as
    in a vector, a transposed matrix or a single column, NumPy sums several partial series in parallel.
    """
    return np.einsum("...k,kn->...n" if right.ndim > 1 else "...k,k->...", left, right)


def _known(function: str, x: Floats) -> Floats | None:
    """The result of compiled code; None if there is none, or if it leaves these numbers to the Python code.

    Arrays that are not contiguous are left to Python: results keep NumPy's memory layout, on which the order of sums
    depends.
    """
    if COMPILED is None or not x.flags.forc:
        return None
    answers = np.empty_like(x)
    given = (x, answers) if x.flags.c_contiguous else (x.T, answers.T)
    return (answers if x.ndim else answers[()]) if getattr(COMPILED, function)(given) else None


def _grown(x: Floats, least: float) -> tuple[npt.NDArray[np.int32], Floats]:
    """k, m of exp(x) = 2 ** k (1 + m): m is exp(r) - 1 of an r within ln(2) / 2 of 0. x: raised to at least `least`."""
    with np.errstate(invalid="ignore"):
        x = np.clip(x, least, LARGEST)
        k = np.rint(x * INVERSE_LN2)
        high, low = x - k * LN2_HIGH, k * LN2_LOW
        r = high - low
        less = r - _series(EXP_TERMS, r * r)
        return k.astype(np.int32), high - (low - (r * less) / (2 - less))


def _series(terms: tuple[float, ...], x: Floats) -> Floats:
    """The polynomial x (terms[0] + x (terms[1] + ...))."""
    total = x * terms[-1]
    for term in reversed(terms[:-1]):
        total += term
        total *= x
    return total


def _any_log(x: Floats) -> Floats:
    """The logarithms of numbers that may be 0, subnormal, negative, infinite or NaN."""
    normal = np.where((x >= LEAST_NORMAL) & (x < np.inf), x, 1.0)
    tiny = np.where((x > 0) & (x < LEAST_NORMAL), x, 2.0**-54) * 2.0**54
    rest = np.select([x > 0, x == 0, x < 0], [np.where(x < np.inf, 0.0, x), -np.inf, np.nan], x)
    return np.where(x < LEAST_NORMAL, np.where(x > 0, log(tiny) - 54 * LN2, rest), log(normal) + rest)


def _parts(x: Floats) -> tuple[Floats, Floats]:
    """k, f of x = 2 ** k (1 + f), where 1 + f is between sqrt(1/2) and sqrt(2). x: normal numbers above 0."""
    bits = x.view(np.int64)
    k = (bits - ROOT_HALF_BITS) >> FRACTION_BITS
    return k.astype(np.float64), (bits - (k << FRACTION_BITS)).view(np.float64) - 1


def _log(f: Floats, low: Floats | float) -> Floats:
    """log(1 + f) + low."""
    s, half = f / (2 + f), f * f / 2
    return f - (half - (s * (half + _series(LOG_TERMS, s * s)) + low))
