/* The largest worth of fillings of a rank, compiled: like `Knapsack.solve` of rank_shares.py by array operations,
   to the last bit. The price of every share is known; a rank takes at most one share of each stage.

   Legend, as in Python: n shares, S stages, R and Q steps of seconds in the first phase and in the later ones. */
#include "../planners/arrays.h"
#include <string.h>

enum { SIZES, STARTS, READY, REST, PRICE, BEFORE, WORTH, TAKEN, ARRAYS };

/* Add one share where it fits and raises the worth; number: of the share within its stage, from 1 on. */
static void add_share(
    i64 R, i64 Q, i64 ready, i64 rest, f64 price, i64 number, const f64 *before, f64 *worth, i64 *taken
) {
    for (i64 r = ready; r <= R; r++) {
        const f64 *restrict beside = before + (r - ready) * (Q + 1);
        f64 *restrict best = worth + r * (Q + 1) + rest;
        i64 *restrict which = taken + r * (Q + 1) + rest;
        for (i64 q = 0; q <= Q - rest; q++) {
            f64 with = beside[q] + price;
            int more = with > best[q];
            best[q] = more ? with : best[q];
            which[q] = more ? number : which[q];
        }
    }
}

static PyObject *run(void *const array[], const i64 lengths[], const void *more) {
    (void)more;
    const i64 *size = array[SIZES], *start = array[STARTS], *ready = array[READY], *rest = array[REST];
    const f64 *price = array[PRICE];
    f64 *before = array[BEFORE], *worth = array[WORTH];
    i64 stages = lengths[STARTS] - 1, shares = lengths[PRICE];
    if (lengths[SIZES] != 2 || stages < 0 || lengths[READY] != shares || lengths[REST] != shares
        || start[0] != 0 || start[stages] != shares)
        return PyErr_Format(PyExc_ValueError, "an array has the wrong length");
    i64 R = size[0], Q = size[1], cells = (R + 1) * (Q + 1);
    if (R < 0 || Q < 0 || lengths[BEFORE] != cells || lengths[WORTH] != cells || lengths[TAKEN] != stages * cells)
        return PyErr_Format(PyExc_ValueError, "an array has the wrong length");
    for (i64 s = 0; s < stages; s++)
        if (start[s + 1] < start[s]) return PyErr_Format(PyExc_ValueError, "stages are not in order");
    Py_BEGIN_ALLOW_THREADS
    memset(worth, 0, cells * sizeof(f64));
    memset(array[TAKEN], 0, stages * cells * sizeof(i64));
    for (i64 s = 0; s < stages; s++) {
        i64 *taken = (i64 *)array[TAKEN] + s * cells;
        memcpy(before, worth, cells * sizeof(f64));
        for (i64 i = start[s]; i < start[s + 1]; i++)
            if (price[i] > 0 && ready[i] >= 0 && ready[i] <= R && rest[i] >= 0 && rest[i] <= Q)
                add_share(R, Q, ready[i], rest[i], price[i], i - start[s] + 1, before, worth, taken);
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *worth_arrays(PyObject *self, PyObject *arrays) {
    (void)self;
    return with_arrays(arrays, ARRAYS, BEFORE, run, NULL);
}

static PyMethodDef METHODS[] = {
    {"worth", worth_arrays, METH_O, "What a rank's shares are worth at most; see rank_shares.py."}, {0}};
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_fillings", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fillings(void) { return PyModule_Create(&MODULE); }
