"""The same bits on every processor: elementary functions, and what is decided with them."""

import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from support.quick_plans import LESS, search, tighten

import recsmith
from recsmith import elementary

DRAWS = np.random.default_rng(0)
NEAR_ONE = DRAWS.uniform(-1, 1, 20_000)
TINY = np.ldexp(NEAR_ONE, DRAWS.integers(-60, 0, 20_000))
WIDE = np.ldexp(np.abs(NEAR_ONE), DRAWS.integers(-900, 900, 20_000))
ARGUMENTS = {
    "exp": (NEAR_ONE * 700, NEAR_ONE, TINY), "log": (WIDE, 1 + TINY / 2), "log2": (WIDE,), "log10": (WIDE,),
    "log1p": (TINY, WIDE), "expm1": (TINY, NEAR_ONE * 40, NEAR_ONE * 700), "tanh": (TINY, NEAR_ONE * 20),
}  # fmt: skip
EDGES = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 5e-324, 1e-310, 709.78, 710, -740, -746, 1e300, -1e300])


@pytest.mark.parametrize("shape", [(0,), (7,), (5, 3)])
def test_distinct_values_and_rows_are_those_of_numpy(shape: tuple[int, ...]):
    values = DRAWS.integers(0, 3, shape)
    for axis in (None, 0):
        np.testing.assert_array_equal(elementary.distinct(values, axis), np.unique(values, axis=axis))


def test_planning_loads_no_masked_arrays():
    asked = "import sys, recsmith; recsmith.plan('dlrm-v2', 'h100:8', iterations=1); print('numpy.ma' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="needs wider numbers to compare with")
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_function_is_right_to_two_units_in_the_last_place(name: str):
    for given in ARGUMENTS[name]:
        right = getattr(np, name)(given.astype(np.longdouble)).astype(np.float64)
        off = np.abs(getattr(elementary, name)(given) - right) / np.spacing(np.abs(right))
        assert off.max() <= 2, given[off.argmax()]


@pytest.mark.parametrize("name", ["exp", "log", "log1p", "expm1", "tanh"])
def test_a_function_takes_the_ends_of_its_range_as_numpy_does(name: str):
    with np.errstate(all="ignore"):
        right = getattr(np, name)(EDGES)
    np.testing.assert_allclose(getattr(elementary, name)(EDGES), right, rtol=1e-13, atol=0)


@pytest.mark.skipif(elementary.COMPILED is None, reason="nothing was compiled")
@pytest.mark.parametrize("name", ["exp", "log", "log1p", "expm1"])
def test_compiled_functions_have_the_same_bits_and_lay_numbers_as_numpy_does(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    square = np.abs(NEAR_ONE).reshape(100, 200)
    given = [*ARGUMENTS[name], EDGES, WIDE, -TINY, square, square.T, square[::2], square[:, 3:9], np.array(0.5), 2.5,
             NEAR_ONE[:0], np.broadcast_to(NEAR_ONE[:9, None], (9, 4))]  # fmt: skip
    with np.errstate(all="ignore"):
        found = [getattr(elementary, name)(each) for each in given]
        monkeypatch.setattr(elementary, "COMPILED", None)
        plain = [getattr(elementary, name)(each) for each in given]
    for one, other in zip(found, plain, strict=True):
        assert type(one) is type(other)
        assert np.shape(one) == np.shape(other)
        assert np.asarray(one).strides == np.asarray(other).strides
        same = np.asarray(one).view(np.int64) == np.asarray(other).view(np.int64)
        assert (same | (np.isnan(one) & np.isnan(other))).all()


def test_logarithms_of_powers_of_two_are_whole():
    powers = np.arange(-1000.0, 1000.0)
    assert (elementary.log2(np.ldexp(1.0, powers.astype(int))) == powers).all()


def test_powers_and_sigmoids_are_those_of_exponentials():
    base, exponent = DRAWS.uniform(0, 50, 1000), DRAWS.uniform(-3, 3, 1000)
    np.testing.assert_allclose(elementary.power(base, exponent), base**exponent, rtol=1e-13)
    assert elementary.power(0.0, 2.0) == 0
    np.testing.assert_allclose(elementary.sigmoid(exponent), 1 / (1 + np.exp(-exponent)), rtol=1e-14)


def bits() -> str:
    """All bits that functions and products give."""
    made = [getattr(elementary, name)(given) for name, some in ARGUMENTS.items() for given in some]
    made += [elementary.power(WIDE, NEAR_ONE), elementary.sigmoid(TINY)]
    left, right = NEAR_ONE.reshape(-1, 40), TINY[:1200].reshape(40, 30)
    products = (
        elementary.matmul(left, right),
        elementary.matmul(left, right[:, 0]),
        elementary.matmul(left, right[::-1]),
    )
    narrow = elementary.matmul(left.astype(np.float32), right.astype(np.float32))
    return "".join(each.tobytes().hex() for each in (*made, *products, narrow))


def decisions() -> str:
    """Digests, costs and bounds of plans, and a sampled workload; each of them differed between processors once."""
    said = [repr(recsmith.sample_workload(60, seed=3))]
    with pytest.MonkeyPatch.context() as patch:
        tighten(LESS, patch.setattr)
        search(set_=patch.setattr)
        workload = recsmith.sample_workload(12, seed=1)
        for name, cluster in (("analytic", "h100:2x2"), ("neural:h100", "h100:2")):
            made = recsmith.plan(workload, recsmith.load_cluster(cluster), cost_model=name).plan
            said.append(f"{made.digest} {made.cost.total_s.hex()} {made.bound.value_s}")
    return "\n".join(said)


@pytest.mark.filterwarnings("ignore:cost model")
@pytest.mark.parametrize("told", [bits, decisions])
def test_what_is_decided_does_not_depend_on_the_processor(told: Callable[[], str]):
    """The same under NumPy without the formulas for this processor, and BLAS for one of 2008."""
    plain = " ".join(np.show_config(mode="dicts")["SIMD Extensions"].get("found", []))
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": plain, "OPENBLAS_CORETYPE": "Nehalem",
                   "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"}  # fmt: skip
    program = f"import test_elementary; print(test_elementary.{told.__name__}(), end='')"
    assert subprocess.check_output([sys.executable, "-c", program], env=environment, text=True) == told()
