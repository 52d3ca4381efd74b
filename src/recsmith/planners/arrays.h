/* The arrays that Python passes to compiled code: a tuple of contiguous buffers, of int64 or double. */
#ifndef RECSMITH_ARRAYS_H
#define RECSMITH_ARRAYS_H
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <stdint.h>

typedef int64_t i64;
typedef double f64;

#define MOST_ARRAYS 64

/* The result of `run` on `count` arrays and their lengths; from `written` on they are writable. `more` is passed on. */
static PyObject *with_arrays(PyObject *arrays, int count, int written,
                             PyObject *(*run)(void *const array[], const i64 lengths[], const void *more),
                             const void *more) {
    if (!PyTuple_Check(arrays) || PyTuple_Size(arrays) != count)
        return PyErr_Format(PyExc_ValueError, "%d arrays are needed", count);
    Py_buffer views[MOST_ARRAYS];
    void *array[MOST_ARRAYS];
    i64 lengths[MOST_ARRAYS];
    int held = 0;
    PyObject *result = NULL;
    for (; held < count; held++) {
        int writable = held >= written ? PyBUF_WRITABLE : 0;
        if (PyObject_GetBuffer(PyTuple_GetItem(arrays, held), views + held, PyBUF_C_CONTIGUOUS | writable) < 0) break;
        array[held] = views[held].buf;
        lengths[held] = (i64)(views[held].len / 8);
        if (views[held].itemsize != 8) {
            PyErr_Format(PyExc_ValueError, "array %d: 8 bytes an item are needed", held);
            held++;
            break;
        }
    }
    if (!PyErr_Occurred()) result = run(array, lengths, more);
    while (held) PyBuffer_Release(views + --held);
    return result;
}
#endif
