/* Longest-first placement, compiled: placement.py says what it does and compiled_placement.py calls it. Given the same
loads it finds the same targets as the Python of device_state.py, one piece after the other.

Legend: N pieces in the order in which they are placed, W ranks, G fusion groups, F phases, J columns of group_loads.h,
k terms. Every array is contiguous, of int64 or double. Callers guarantee that numbers in arrays are indices of
what they name; only lengths are checked here.
*/
#include "../group_loads.h"
#include <stdlib.h>
#include <string.h>

#define NOWHERE -1
#define MOST_PHASES 16

typedef struct {
    i64 N, W, F, J, k, per_host;
    f64 quantum, memory_weight;
    /* (N,): group, ranks that it covers, bytes of all ranks but the last and of the last, host bytes of the hosts */
    const i64 *group, *size, *head, *tail, *other_hosts, *last_host;
    const i64 *table, *kind, *width;                       /* (N,): kind 0 goes anywhere, 1 and 2 see `allowed` */
    const f64 *terms, *columns;                            /* (N, k); (N, J) */
    GroupLoads groups;
    const f64 *expected;                                   /* (F,) */
    const i64 *capacity;                                   /* (W,) */
    f64 *sums, *cells, *group_loads, *loads;               /* (G, W, k), (G, J, W), (G, F, W), (F, W) */
    i64 *free_, *host_free, *target;                       /* (W,), hosts, (N,) */
    f64 *powers, *seconds, *with;                          /* (F, W), (F, W), (J,): worked out on the way */
    f64 *score, *used, *scale;                             /* (W,): so are these; shares of memory, and of a byte */
    i64 *first;                                            /* (N,): the first piece of its table in this order */
} Placing;

static f64 power(f64 x) { x *= x, x *= x; return x * x; }  /* BALANCE of device_state.py: 8 */

static f64 *cells_of(const Placing *p, i64 piece) { return p->cells + p->group[piece] * p->J * p->W; }

/* Seconds (F, W) of a piece's group, were it on each of the ranks from `from` up to `to`. */
static void price_each(const Placing *p, i64 piece, i64 from, i64 to) {
    const f64 *cell = cells_of(p, piece) + from, *own = p->columns + piece * p->J;
    f64 seconds[MOST_PHASES];
    for (i64 w = from; w < to; w++, cell++) {
        for (i64 j = 0; j < p->J; j++) p->with[j] = cell[j * p->W] + own[j];
        price_group(&p->groups, p->with, seconds);
        for (i64 f = 0; f < p->F; f++) p->seconds[f * p->W + w] = seconds[f];
    }
}

/* The same for models without shares, whose linear functions take all ranks side by side. */
static void price_linear(const Placing *p, i64 piece, f64 *restrict most, i64 from, i64 to) {  /* most (W,): worked out */
    const f64 *cell = cells_of(p, piece), *own = p->columns + piece * p->J, *offset = p->groups.offset;
    for (i64 f = 0; f < p->F; f++) for (i64 w = from; w < to; w++) p->seconds[f * p->W + w] = p->groups.opening[f];
    for (const i64 *each = p->groups.planes; each < p->groups.planes + 3 * p->groups.maxima; each += 3) {
        f64 *restrict seconds = p->seconds + each[0] * p->W;
        for (i64 w = from; w < to; w++) most[w] = 0;
        for (i64 j = 0; j < each[1]; j++, cell += p->W, own++, offset++) {
            f64 mine = *own, less = *offset;
            for (i64 w = from; w < to; w++) {
                f64 linear = cell[w] + mine - less;
                most[w] = linear > most[w] ? linear : most[w];
            }
        }
        for (i64 w = from; w < to; w++) seconds[w] += most[w];
    }
}

/* What each of the ranks from `from` up to `to` counts for a piece, less being better. */
static void score_ranks(const Placing *p, i64 piece, i64 from, i64 to) {
    int balances = p->F > 1 || p->memory_weight > 0;
    f64 all = 0, *restrict score = p->score;
    if (p->groups.extras) price_each(p, piece, from, to);
    else price_linear(p, piece, score, from, to);
    for (i64 w = from; w < to; w++) score[w] = 0;
    for (i64 f = 0; f < p->F; f++) {
        const f64 *before = p->group_loads + (p->group[piece] * p->F + f) * p->W, *with = p->seconds + f * p->W;
        const f64 *loads = p->loads + f * p->W, *powers = p->powers + f * p->W;
        f64 expected = p->expected[f];
        all += expected;
        for (i64 w = from; w < to; w++) {
            f64 after = loads[w] - before[w] + with[w];
            score[w] = balances ? score[w] + expected * (power(after / expected) - powers[w]) : after;
        }
    }
    f64 bytes = (f64)p->tail[piece];
    for (i64 w = from; w < (p->memory_weight ? to : from); w++)
        score[w] += all * (power(p->used[w] + bytes * p->scale[w]) - power(p->used[w]));
}

static int fits(const Placing *p, i64 piece, i64 target) {
    i64 size = p->size[piece], last = (target + 1) * size - 1;
    for (i64 w = target * size; w < last; w++) if (p->free_[w] < p->head[piece]) return 0;
    if (p->free_[last] < p->tail[piece]) return 0;
    for (i64 h = target * size / p->per_host; h < last / p->per_host; h++)
        if (p->host_free[h] < p->other_hosts[piece]) return 0;
    return p->host_free[last / p->per_host] >= p->last_host[piece];
}

/* Pieces of a table that share a rank are equally wide (kind 1), and stay on one host (kind 2). */
static int allowed(const Placing *p, i64 piece, i64 target) {
    if (!p->kind[piece]) return 1;
    for (i64 other = p->first[piece]; other < piece; other++) {
        if (p->table[other] != p->table[piece] || p->target[other] == NOWHERE) continue;
        if (p->target[other] == target && p->width[other] != p->width[piece]) return 0;
        if (p->kind[piece] == 2 && p->target[other] / p->per_host != target / p->per_host) return 0;
    }
    return 1;
}

static void put(Placing *p, i64 piece, i64 target) {
    i64 size = p->size[piece], first = target * size, last = first + size - 1, group = p->group[piece];
    f64 seconds[MOST_PHASES];
    for (i64 w = first; w <= last; w++) {
        int same = w > first;                              /* as the rank before it: then it need not be priced */
        f64 *sums = p->sums + (group * p->W + w) * p->k, *cell = cells_of(p, piece) + w;
        for (i64 i = 0; i < p->k; i++) sums[i] += p->terms[piece * p->k + i];
        for (i64 j = 0; j < p->J; j++, cell += p->W) {
            p->with[j] = *cell += p->columns[piece * p->J + j];
            same = same && *cell == cell[-1];
        }
        if (!same) price_group(&p->groups, p->with, seconds);
        for (i64 f = 0; f < p->F; f++) {
            f64 *own = p->group_loads + (group * p->F + f) * p->W + w, *load = p->loads + f * p->W + w;
            *load += seconds[f] - *own, *own = seconds[f];
            p->powers[f * p->W + w] = power(*load / p->expected[f]);
        }
        p->free_[w] -= w < last ? p->head[piece] : p->tail[piece];
        p->used[w] = p->memory_weight - (f64)p->free_[w] * p->scale[w];
    }
    for (i64 h = first / p->per_host; h < last / p->per_host; h++) p->host_free[h] -= p->other_hosts[piece];
    p->host_free[last / p->per_host] -= p->last_host[piece];
    p->target[piece] = target;
}

static int is_alike(const Placing *p, i64 piece, i64 other) {  /* whether both count the same wherever they are */
    return p->group[piece] == p->group[other] && p->size[piece] == p->size[other] && p->tail[piece] == p->tail[other]
        && !memcmp(p->columns + piece * p->J, p->columns + other * p->J, p->J * sizeof(f64));
}

/* Scores for a piece; where the one before it was alike, only the ranks that have taken it count otherwise now. */
static void score_next(const Placing *p, i64 piece) {
    i64 from = 0, to = p->W, size = p->size[piece];
    if (piece && is_alike(p, piece, piece - 1)) {
        i64 taken = p->target[piece - 1];
        from = taken == NOWHERE ? p->W : taken * size, to = taken == NOWHERE ? p->W : from + size;
    }
    score_ranks(p, piece, from, to);
}

static void place_all(Placing *p) {
    for (i64 i = 0; i < p->F * p->W; i++) p->powers[i] = power(p->loads[i] / p->expected[i / p->W]);
    for (i64 w = 0; w < p->W; w++) {
        p->score[w] = 0, p->scale[w] = p->memory_weight / (f64)p->capacity[w];
        p->used[w] = p->memory_weight - (f64)p->free_[w] * p->scale[w];
    }
    for (i64 piece = 0; piece < p->N; piece++) {
        i64 size = p->size[piece], best = NOWHERE;
        f64 least = INFINITY, above = INFINITY;            /* in quanta; a score that is no less, for all rounding */
        p->target[piece] = NOWHERE;
        if (size < p->W) score_next(p, piece);             /* the one target of the world needs no score */
        for (i64 target = 0; target < p->W / size; target++) {
            f64 score = p->score[target * size];
            for (i64 w = target * size + 1; w < (target + 1) * size; w++) if (p->score[w] > score) score = p->score[w];
            if (score > above) continue;                   /* divisions take long */
            score /= p->quantum;
            if (score < least && fits(p, piece, target) && allowed(p, piece, target))
                least = floor(score), above = least * p->quantum + 1e-12 * fabs(least * p->quantum), best = target;
        }
        if (best != NOWHERE) put(p, piece, best);
    }
}

/* --- from Python ------------------------------------------------------------------------------------------------- */

enum {  /* the arrays, in the order of the call; from SUMS on they are written to */
    SIZES, SCALES, GROUP, SIZE, HEAD, TAIL, OTHER_HOSTS, LAST_HOST, TABLE, KIND, WIDTH, TERMS, COLUMNS, GROUPS,
    EXPECTED = GROUPS + GROUP_ARRAYS, CAPACITY, FIRST, SUMS, CELLS, GROUP_LOADS, LOADS, FREE, HOST_FREE, TARGET, ARRAYS
};

static int read_arrays(Placing *p, void *const array[], const i64 lengths[]) {  /* 0 where a length is wrong */
    if (lengths[SIZES] != 5 || lengths[SCALES] != 2) return 0;
    const i64 *sizes = array[SIZES];
    p->N = sizes[0], p->W = sizes[1], p->F = sizes[2], p->k = sizes[3], p->per_host = sizes[4];
    if (p->W < 1 || p->k < 1 || p->per_host < 1) return 0;
    p->quantum = ((const f64 *)array[SCALES])[0], p->memory_weight = ((const f64 *)array[SCALES])[1];
    p->group = array[GROUP], p->size = array[SIZE], p->head = array[HEAD], p->tail = array[TAIL];
    p->other_hosts = array[OTHER_HOSTS], p->last_host = array[LAST_HOST];
    p->table = array[TABLE], p->kind = array[KIND], p->width = array[WIDTH], p->terms = array[TERMS];
    p->columns = array[COLUMNS], p->expected = array[EXPECTED], p->capacity = array[CAPACITY], p->first = array[FIRST];
    p->sums = array[SUMS], p->cells = array[CELLS], p->group_loads = array[GROUP_LOADS], p->loads = array[LOADS];
    p->free_ = array[FREE], p->host_free = array[HOST_FREE], p->target = array[TARGET];
    if (!read_group_loads(&p->groups, array + GROUPS, lengths + GROUPS)) return 0;
    i64 N = p->N, W = p->W, G = lengths[SUMS] / (p->W * p->k), F = p->F, k = p->k, J = p->J = p->groups.columns;
    if (p->groups.F != F || F > MOST_PHASES) return 0;
    const i64 expected[ARRAYS] = {
        5, 2, N, N, N, N, N, N, N, N, N, N * k, N * J,
        [EXPECTED] = F, W, N, G * W * k, G * W * J, G * F * W, F * W, W, W / p->per_host, N,
    };
    for (int i = 0; i < ARRAYS; i++) if ((i < GROUPS || i >= EXPECTED) && lengths[i] != expected[i]) return 0;
    return 1;
}

static PyObject *run(void *const array[], const i64 lengths[], const void *more) {
    (void)more;
    Placing placing = {0}, *p = &placing;
    if (!read_arrays(p, array, lengths)) return PyErr_Format(PyExc_ValueError, "an array has the wrong length");
    p->powers = malloc(((2 * p->F + 3) * p->W + p->J) * sizeof(f64));
    if (!p->powers) return PyErr_NoMemory();
    p->seconds = p->powers + p->F * p->W, p->score = p->seconds + p->F * p->W;
    p->used = p->score + p->W, p->scale = p->used + p->W, p->with = p->scale + p->W;
    Py_BEGIN_ALLOW_THREADS
    place_all(p);
    Py_END_ALLOW_THREADS
    free(p->powers);
    Py_RETURN_NONE;
}

static PyObject *place_arrays(PyObject *self, PyObject *arrays) {
    (void)self;
    return with_arrays(arrays, ARRAYS, SUMS, run, NULL);
}

static PyMethodDef METHODS[] = {{"place", place_arrays, METH_O, "Place pieces; see compiled_placement.py."}, {0}};
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_placing", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__placing(void) { return PyModule_Create(&MODULE); }
