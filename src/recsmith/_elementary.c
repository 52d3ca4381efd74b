/* Functions of elementary.py for arrays whose numbers lie side by side: its formulas, to the same bits.

   A call takes (numbers, room for as many answers), and says whether it gave them. Compile with -ffp-contract=off. */
#include "planners/arrays.h"
#include "planners/elementary.h"

typedef int (*Function)(f64 x, f64 *answer);               /* whether it knows the answer */

static int exp_of(f64 x, f64 *answer) {
    *answer = x == x ? same_exp(x) : x;
    return 1;
}

static int expm1_of(f64 x, f64 *answer) {
    int64_t k;
    f64 more = grown(x, -45, &k);
    *answer = x == x ? scaled(more + (1 - scaled(1, -k)), k) : x;
    return 1;
}

static int log_of(f64 x, f64 *answer) {                    /* of normal numbers above 0 */
    *answer = same_log(x);
    return x >= 0x1p-1022 && x < INFINITY;
}

static int log1p_of(f64 x, f64 *answer) {
    f64 more = 1 + x, logarithm;
    int known = log_of(more, &logarithm);
    *answer = more == 1 ? x : logarithm * (x / (more - 1));
    return known;
}

static PyObject *answers(void *const array[], const i64 lengths[], const void *more) {
    const f64 *x = array[0];
    f64 *answer = array[1];
    Function function = *(const Function *)more;
    if (lengths[1] != lengths[0]) return PyErr_Format(PyExc_ValueError, "as many answers as numbers are needed");
    for (i64 i = 0; i < lengths[0]; i++)
        if (!function(x[i], answer + i)) Py_RETURN_FALSE;
    Py_RETURN_TRUE;
}

#define OF_ARRAYS(name) \
    static PyObject *name##_of_arrays(PyObject *_, PyObject *arrays) { \
        const Function function = name##_of; \
        return with_arrays(arrays, 2, 1, answers, &function); \
    }
OF_ARRAYS(exp) OF_ARRAYS(expm1) OF_ARRAYS(log) OF_ARRAYS(log1p)

static PyMethodDef METHODS[] = {
    {"exp", exp_of_arrays, METH_O, "E ** x."}, {"expm1", expm1_of_arrays, METH_O, "E ** x - 1."},
    {"log", log_of_arrays, METH_O, "The natural logarithm."}, {"log1p", log1p_of_arrays, METH_O, "log(1 + x)."}, {0}};
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_elementary", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__elementary(void) { return PyModule_Create(&MODULE); }
