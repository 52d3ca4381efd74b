/* Rows in two halves of 16 bits (rows.py): pooled, with gradients of equal ids summed, joined to fp32 and split again.

   A row of D columns has its D upper halves first and its lower ones behind them. B bags, L ids, n distinct ones. All is as
   pooling.py does it without this, to the bit: sums in the order of ids, in lookups fused with the product where ids have
   weights. Compile with -ffp-contract=off. */
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t i64;
typedef uint64_t u64;
typedef uint32_t u32;
typedef uint16_t u16;

/* What a machine can do is found when the code is loaded. Without fused products in hardware, fmaf is the C library's. */
#if !defined(__x86_64__) || !defined(__GLIBC__) || !defined(__GNUC__) || defined(__clang__)
#define CLONES
#elif __GNUC__ >= 12
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#ifdef __GNUC__
#pragma GCC diagnostic ignored "-Wpsabi"                   /* of vectors that functions return: all are inlined */
#endif
#define INLINE static inline __attribute__((always_inline))

enum { LANES = 16, AHEAD = 8, LONGEST = 4096 };            /* of a vector; rows fetched ahead; columns that are updated here */
typedef float Lanes __attribute__((vector_size(4 * LANES)));
typedef u32 Words __attribute__((vector_size(4 * LANES)));
typedef u16 Shorts __attribute__((vector_size(2 * LANES)));

INLINE float number(u32 bits) { float x; memcpy(&x, &bits, 4); return x; }
INLINE u32 bits_of(float x) { u32 bits; memcpy(&bits, &x, 4); return bits; }

INLINE Lanes widened(const u16 *upper) {                   /* bf16 to fp32 */
    Shorts halves;
    memcpy(&halves, upper, sizeof halves);
    return (Lanes)(__builtin_convertvector(halves, Words) << 16);
}

INLINE void fetch(const void *row, i64 bytes) {
    for (i64 at = 0; at < bytes; at += 64) __builtin_prefetch((const char *)row + at);
}

/* Some vectors of a bag. */
#define POOL(COUNT) \
    for (; column + COUNT * LANES <= columns; column += COUNT * LANES) { \
        Lanes sum[COUNT]; \
        for (int k = 0; k < COUNT; k++) sum[k] = (Lanes){0}; \
        for (i64 i = first; i < last; i++) { \
            if (column == 0 && i + AHEAD < count) fetch(halves + 2 * columns * ids[i + AHEAD], 2 * columns); \
            const u16 *row = halves + 2 * columns * ids[i] + column; \
            for (int k = 0; k < COUNT; k++) sum[k] += widened(row + k * LANES); \
        } \
        memcpy(out + column, sum, sizeof sum); \
    }

CLONES static void pool(const u16 *halves, i64 columns, const i64 *ids, i64 first, i64 last, i64 count, float *out) {
    i64 column = 0;
    POOL(8) POOL(4) POOL(2) POOL(1)
    for (; column < columns; column++) {
        float sum = 0;
        for (i64 i = first; i < last; i++) sum += number((u32)halves[2 * columns * ids[i] + column] << 16);
        out[column] = sum;
    }
}

CLONES static void pool_weighted(const u16 *halves, i64 columns, const i64 *ids, i64 first, i64 last, const float *weights,
                                 float *out) {
    for (i64 column = 0; column < columns; column++) out[column] = 0;
    for (i64 i = first; i < last; i++) {
        const u16 *row = halves + 2 * columns * ids[i];
        for (i64 column = 0; column < columns; column++)
            out[column] = __builtin_fmaf(weights[i], number((u32)row[column] << 16), out[column]);
    }
}

CLONES static void add(float *sum, const float *more, i64 columns) {
    for (i64 column = 0; column < columns; column++) sum[column] += more[column];
}

CLONES static void add_weighted(float *sum, const float *more, float weight, i64 columns) {
    for (i64 column = 0; column < columns; column++) sum[column] += weight * more[column];
}

CLONES static void join(const u16 *row, i64 columns, int nearest, float *out) {
    if (nearest)
        for (i64 k = 0; k < columns; k++) out[k] = number(((u32)row[k] << 16) + (u32)(int32_t)(int16_t)row[columns + k]);
    else
        for (i64 k = 0; k < columns; k++) out[k] = number(((u32)row[k] << 16) | row[columns + k]);
}

CLONES static void part(const float *weights, i64 columns, u32 half, u32 nan, u16 *row) {
    for (i64 k = 0; k < columns; k++) {
        u32 bits = bits_of(weights[k]);
        bits = (bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : bits;
        row[k] = (u16)((bits + half) >> 16);
        row[columns + k] = (u16)bits;
    }
}

CLONES static void descend(float *weights, const float *gradient, i64 columns, float rate, float deviation) {
    for (i64 k = 0; k < columns; k++) weights[k] = weights[k] + rate * gradient[k] / deviation;
}

/* The places of ids in their order, equal ones as they came: keys are (id << 32 | place), by 11 bits of the id at once. */
static u64 *sorted(u64 *keys, u64 *room, i64 count, i64 largest) {
    for (int shift = 32; largest >> (shift - 32); shift += 11) {
        i64 starts[2049] = {0};
        for (i64 i = 0; i < count; i++) starts[(keys[i] >> shift & 2047) + 1]++;
        for (int k = 0; k < 2048; k++) starts[k + 1] += starts[k];
        for (i64 i = 0; i < count; i++) room[starts[keys[i] >> shift & 2047]++] = keys[i];
        u64 *other = keys;
        keys = room, room = other;
    }
    return keys;
}

/* --- what Python calls, with buffers of these sizes an item ------------------------------------------------------- */

#define MOST 8
typedef struct { Py_buffer views[MOST]; void *at[MOST]; i64 lengths[MOST]; int held; } Arrays;

static void release(Arrays *arrays) {
    while (arrays->held) PyBuffer_Release(arrays->views + --arrays->held);
}

static int hold(PyObject *tuple, const char *sizes, Arrays *arrays) {
    int count = (int)strlen(sizes);
    arrays->held = 0;
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != count) {
        PyErr_Format(PyExc_ValueError, "%d arrays are needed", count);
        return 0;
    }
    for (int i = 0; i < count; i++) {
        Py_buffer *view = arrays->views + i;
        if (PyObject_GetBuffer(PyTuple_GetItem(tuple, i), view, PyBUF_C_CONTIGUOUS) < 0) break;
        arrays->held++;
        i64 bytes = sizes[i] - '0';
        if (view->itemsize != bytes) {
            PyErr_Format(PyExc_ValueError, "array %d: %d bytes an item are needed", i, (int)bytes);
            break;
        }
        arrays->at[i] = view->buf;
        arrays->lengths[i] = (i64)(view->len / bytes);
    }
    if (PyErr_Occurred()) release(arrays);
    return !PyErr_Occurred();
}

static PyObject *refused(Arrays *arrays, const char *why) {
    release(arrays);
    return PyErr_Format(PyExc_ValueError, "%s", why);
}

static int within(const i64 *ids, i64 count, i64 rows) {
    for (i64 i = 0; i < count; i++)
        if ((u64)ids[i] >= (u64)rows) return 0;
    return 1;
}

/* (halves, ids, ends of bags, weights of ids or none, out, [columns, samples, features, first column, columns of out]). */
static PyObject *pooled(PyObject *_, PyObject *tuple) {
    Arrays arrays;
    if (!hold(tuple, "288448", &arrays)) return NULL;
    void **at = arrays.at;
    const i64 *ids = at[1], *ends = at[2], *numbers = at[5], count = arrays.lengths[1];
    if (arrays.lengths[5] != 5) return refused(&arrays, "5 numbers are needed");
    i64 columns = numbers[0], samples = numbers[1], features = numbers[2], start = numbers[3], width = numbers[4];
    if (columns < 1 || arrays.lengths[2] != samples * features + 1 || start + features * columns > width ||
        arrays.lengths[4] != samples * width || (arrays.lengths[3] && arrays.lengths[3] != count))
        return refused(&arrays, "sizes that do not agree");
    if (ends[0] != 0 || ends[samples * features] != count) return refused(&arrays, "bags that do not hold all ids");
    for (i64 bag = 0; bag < samples * features; bag++)
        if (ends[bag + 1] < ends[bag]) return refused(&arrays, "bags that end before they begin");
    if (!within(ids, count, arrays.lengths[0] / (2 * columns))) return refused(&arrays, "an id that is no row");
    for (i64 bag = 0; bag < samples * features; bag++) {
        float *out = (float *)at[4] + (bag % samples) * width + start + (bag / samples) * columns;
        if (arrays.lengths[3]) pool_weighted(at[0], columns, ids, ends[bag], ends[bag + 1], at[3], out);
        else pool(at[0], columns, ids, ends[bag], ends[bag + 1], count, out);
    }
    release(&arrays);
    Py_RETURN_NONE;
}

/* (ids, ends, order with room for 2 L + 1, places of gradients, distinct, first of each, [columns, samples, features, first
   column, columns of the gradient]): how many distinct ids there are; which, in their order; and where each of them begins. */
static PyObject *ordered(PyObject *_, PyObject *tuple) {
    Arrays arrays;
    if (!hold(tuple, "8888888", &arrays)) return NULL;
    void **at = arrays.at;
    const i64 *ids = at[0], *ends = at[1], *numbers = at[6], count = arrays.lengths[0];
    u64 *keys = at[2];
    i64 *from = at[3], *distinct = at[4], *begins = at[5], found = 0, largest = 0;
    if (arrays.lengths[6] != 5) return refused(&arrays, "5 numbers are needed");
    i64 columns = numbers[0], samples = numbers[1], features = numbers[2], start = numbers[3], width = numbers[4];
    if (columns < 1 || arrays.lengths[1] != samples * features + 1 || start + features * columns > width || count >> 32 ||
        arrays.lengths[2] < 2 * count || arrays.lengths[3] < count || arrays.lengths[4] < count ||
        arrays.lengths[5] < count + 1 || ends[samples * features] != count)
        return refused(&arrays, "sizes that do not agree");
    if (!within(ids, count, (i64)1 << 32)) return refused(&arrays, "an id that is too large");
    for (i64 bag = 0; bag < samples * features; bag++)
        for (i64 i = ends[bag]; i < ends[bag + 1]; i++)
            from[i] = (bag % samples) * width + start + (bag / samples) * columns;
    for (i64 i = 0; i < count; i++) {
        keys[i] = (u64)ids[i] << 32 | (u64)i;
        if (ids[i] > largest) largest = ids[i];
    }
    u64 *order = sorted(keys, keys + count, count, largest);
    for (i64 i = 0; i < count; i++) {
        if (!i || order[i - 1] >> 32 != order[i] >> 32) distinct[found] = (i64)(order[i] >> 32), begins[found++] = i;
        if (order != keys) keys[i] = order[i];             /* its halves do not overlap */
    }
    begins[found] = count;
    release(&arrays);
    return PyLong_FromLongLong(found);
}

/* (order, places of gradients, first of each, weights or none, gradient, sums, [columns, first, last]): of distinct ids. */
static PyObject *summed(PyObject *_, PyObject *tuple) {
    Arrays arrays;
    if (!hold(tuple, "8884448", &arrays)) return NULL;
    void **at = arrays.at;
    const u64 *order = at[0];
    const i64 *from = at[1], *begins = at[2], *numbers = at[6];
    const float *weights = arrays.lengths[3] ? at[3] : NULL, *gradient = at[4];
    if (arrays.lengths[6] != 3) return refused(&arrays, "3 numbers are needed");
    i64 columns = numbers[0], first = numbers[1], last = numbers[2];
    if (first < 0 || last < first || last >= arrays.lengths[2] || arrays.lengths[5] < (last - first) * columns)
        return refused(&arrays, "sizes that do not agree");
    for (i64 row = first; row < last; row++) {
        float *sum = (float *)at[5] + (row - first) * columns;
        memset(sum, 0, (size_t)columns * sizeof *sum);
        for (i64 i = begins[row]; i < begins[row + 1]; i++) {
            u32 place = (u32)order[i];
            const float *more = gradient + from[place];
            if (i + AHEAD < begins[last]) fetch(gradient + from[(u32)order[i + AHEAD]], 4 * columns);
            if (weights) add_weighted(sum, more, weights[place], columns);
            else add(sum, more, columns);
        }
    }
    release(&arrays);
    Py_RETURN_NONE;
}

/* (halves, ids, gradients, what each row's is divided by, [columns, nearest, bits of a NaN], [rate]): a step down. */
static PyObject *descended(PyObject *_, PyObject *tuple) {
    Arrays arrays;
    if (!hold(tuple, "284488", &arrays)) return NULL;
    u16 *halves = arrays.at[0];
    const i64 *ids = arrays.at[1], *numbers = arrays.at[4], count = arrays.lengths[1];
    const float *gradients = arrays.at[2], *deviations = arrays.at[3];
    if (arrays.lengths[4] != 3 || arrays.lengths[5] != 1) return refused(&arrays, "3 numbers and a rate are needed");
    i64 columns = numbers[0];
    if (columns < 1 || columns > LONGEST || arrays.lengths[2] < count * columns || arrays.lengths[3] < count)
        return refused(&arrays, "sizes that do not agree");
    if (!within(ids, count, arrays.lengths[0] / (2 * columns))) return refused(&arrays, "an id that is no row");
    float rate = -(float)*(const double *)arrays.at[5], weights[LONGEST];
    for (i64 i = 0; i < count; i++) {
        if (i + AHEAD < count) fetch(halves + 2 * columns * ids[i + AHEAD], 4 * columns);
        u16 *row = halves + 2 * columns * ids[i];
        join(row, columns, numbers[1] != 0, weights);
        descend(weights, gradients + i * columns, columns, rate, deviations[i]);
        part(weights, columns, numbers[1] ? 0x8000u : 0, (u32)numbers[2], row);
    }
    release(&arrays);
    Py_RETURN_NONE;
}

/* (halves, ids, fp32 rows of them, [columns, nearest, bits of a NaN]): what `written` says goes from one to the other. */
static PyObject *moved(PyObject *tuple, int written) {
    Arrays arrays;
    if (!hold(tuple, "2848", &arrays)) return NULL;
    const i64 *ids = arrays.at[1], *numbers = arrays.at[3], count = arrays.lengths[1];
    if (arrays.lengths[3] != 3) return refused(&arrays, "3 numbers are needed");
    i64 columns = numbers[0];
    if (columns < 1 || arrays.lengths[2] < count * columns) return refused(&arrays, "sizes that do not agree");
    if (!within(ids, count, arrays.lengths[0] / (2 * columns))) return refused(&arrays, "an id that is no row");
    u16 *halves = arrays.at[0];
    float *rows = arrays.at[2];
    for (i64 i = 0; i < count; i++) {
        if (i + AHEAD < count) fetch(halves + 2 * columns * ids[i + AHEAD], 4 * columns);
        if (written) part(rows + i * columns, columns, numbers[1] ? 0x8000u : 0, (u32)numbers[2], halves + 2 * columns * ids[i]);
        else join(halves + 2 * columns * ids[i], columns, numbers[1] != 0, rows + i * columns);
    }
    release(&arrays);
    Py_RETURN_NONE;
}

static PyObject *joined(PyObject *_, PyObject *tuple) { return moved(tuple, 0); }
static PyObject *parted(PyObject *_, PyObject *tuple) { return moved(tuple, 1); }

static PyMethodDef METHODS[] = {
    {"pooled", pooled, METH_O, "Bags of rows."}, {"ordered", ordered, METH_O, "Distinct ids, in their order."},
    {"summed", summed, METH_O, "Gradients of distinct ids."}, {"descended", descended, METH_O, "An update of rows."},
    {"joined", joined, METH_O, "Rows as fp32."}, {"parted", parted, METH_O, "fp32 rows in halves."}, {0}};
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_halved_rows", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__halved_rows(void) { return PyModule_Create(&MODULE); }
