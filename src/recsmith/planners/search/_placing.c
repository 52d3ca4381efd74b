/* Longest-first placement, compiled: placement.py describes it and compiled_placement.py calls it. Given the same loads
it finds the same targets as the Python of device_state.py, one piece after the other.

Legend: N pieces in the order of placement, W ranks, G fusion groups, F phases, J columns of group_loads.h, k terms.
Every array is contiguous, of int64 or double. Callers guarantee that numbers in arrays are indices of what they name;
only lengths are checked here.
*/
#include "../group_loads.h"
#include <stdlib.h>
#include <string.h>

#define NOWHERE -1
#define MOST_PHASES 16

typedef struct {
    i64 N, W, F, J, k, G, per_host, adds_up;                  /* adds_up: pieces add one column, whatever is there */
    i64 few;                                               /* ranks that are scored under a learned model; 0: all */
    f64 quantum, memory_weight;
    /* (N,): group, ranks that it covers, bytes of all ranks but the last and of the last, host bytes of the hosts */
    const i64 *group, *size, *head, *tail, *other_hosts, *last_host;
    const i64 *before, *kind, *width;  /* (N,): the previous piece of its table; kind 0: anywhere; 1, 2: `allowed` */
    const f64 *terms, *columns;                            /* (N, k); (N, J) */
    GroupLoads groups;
    const f64 *expected;                                   /* (F,) */
    const i64 *capacity;                                   /* (W,) */
    f64 *sums, *cells, *group_loads, *loads;               /* (G, W, k), (G, J, W), (G, F, W), (F, W) */
    i64 *free_, *host_free, *target;                       /* (W,), hosts, (N,) */
    f64 *powers, *seconds, *with;                          /* (F, W), (F, W), (J,): buffers */
    f64 *score, *used, *scale;                             /* (W,): buffers; shares of memory used, and of a byte */
    f64 *full, *sorted, level;                             /* (W,): fullness; the highest fullness that is scored */
    i64 is_short, uses;                                    /* whether few ranks are scored; how often since */
} Placing;

static f64 power(f64 x) { x *= x, x *= x; return x * x; }  /* BALANCE of device_state.py: 8 */

static f64 *cells_of(const Placing *p, i64 piece) { return p->cells + p->group[piece] * p->J * p->W; }

/* Seconds (F, W) of a piece's group if it were on each of the ranks from `from` up to `to`. */
static void price_each(const Placing *p, i64 piece, i64 from, i64 to) {
    const f64 *cell = cells_of(p, piece) + from, *own = p->columns + piece * p->J;
    f64 seconds[MOST_PHASES];
    for (i64 w = from; w < to; w++, cell++) {
        for (i64 j = 0; j < p->J; j++) p->with[j] = cell[j * p->W] + own[j];
        price_group(&p->groups, p->with, seconds);
        for (i64 f = 0; f < p->F; f++) p->seconds[f * p->W + w] = seconds[f];
    }
}

/* The same for models without shares, whose linear functions are computed for all ranks side by side. */
static void price_linear(const Placing *p, i64 piece, f64 *restrict most, i64 from, i64 to) {  /* most (W,): a buffer */
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

/* Loads (F, W) of the ranks from `from` up to `to` if a piece were on each of them. */
static void loads_with(const Placing *p, i64 piece, i64 from, i64 to) {
    if (p->adds_up) {
        for (i64 w = from; w < to; w++) p->seconds[w] = p->loads[w] + p->columns[piece];
        return;
    }
    if (p->groups.extras) price_each(p, piece, from, to);
    else price_linear(p, piece, p->score, from, to);
    for (i64 f = 0; f < p->F; f++) {
        const f64 *before = p->group_loads + (p->group[piece] * p->F + f) * p->W, *loads = p->loads + f * p->W;
        f64 *with = p->seconds + f * p->W;
        for (i64 w = from; w < to; w++) with[w] = loads[w] - before[w] + with[w];
    }
}

/* The score of each of the ranks from `from` up to `to` for a piece, lower being better. */
static void score_ranks(const Placing *p, i64 piece, i64 from, i64 to) {
    int balances = p->F > 1 || p->memory_weight > 0;
    f64 all = 0, *restrict score = p->score;
    loads_with(p, piece, from, to);
    for (i64 w = from; w < to; w++) score[w] = 0;
    for (i64 f = 0; f < p->F; f++) {
        const f64 *after = p->seconds + f * p->W, *powers = p->powers + f * p->W;
        f64 expected = p->expected[f];
        all += expected;
        if (balances) for (i64 w = from; w < to; w++) score[w] += expected * (power(after[w] / expected) - powers[w]);
        else for (i64 w = from; w < to; w++) score[w] = after[w];
    }
    f64 bytes = (f64)p->tail[piece];
    for (i64 w = from; w < (p->memory_weight ? to : from); w++)
        score[w] += all * (power(p->used[w] + bytes * p->scale[w]) - power(p->used[w]));
}

static int by_fullness(const void *one, const void *other) {
    f64 a = *(const f64 *)one, b = *(const f64 *)other;
    return (a > b) - (a < b);
}

/* The fullness up to which `few` ranks have room for a piece; -infinity if none has room. */
static f64 level_of_few(const Placing *p, i64 piece) {
    i64 roomy = 0;
    for (i64 w = 0; w < p->W; w++) if (p->free_[w] >= p->tail[piece]) p->sorted[roomy++] = p->full[w];
    qsort(p->sorted, roomy, sizeof(f64), by_fullness);
    return roomy ? p->sorted[roomy < p->few ? roomy - 1 : p->few - 1] : -INFINITY;
}

/* Score the `few` least full ranks with room: a piece costs least there, or nearly. Returns how many were scored. */
static i64 score_few(Placing *p, i64 piece) {
    i64 below = 0, level = 0, found = 0;
    for (int again = 0; again < 2 && below + level < p->few / 2; again++) {
        if (again) p->level = level_of_few(p, piece);      /* half of them have become fuller */
        below = level = 0;
        for (i64 w = 0; w < p->W; w++) if (p->free_[w] >= p->tail[piece])
            below += p->full[w] < p->level, level += p->full[w] == p->level;
    }
    level = p->few - below;                                /* of equally full ranks this many, the first ones */
    for (i64 w = 0; w < p->W; w++) {
        p->score[w] = INFINITY;
        if (p->free_[w] < p->tail[piece] || p->full[w] > p->level || (p->full[w] == p->level && level-- <= 0)) continue;
        score_ranks(p, piece, w, w + 1), found++;
    }
    return found;
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
    for (i64 other = p->before[piece]; other != NOWHERE; other = p->before[other]) {
        if (p->target[other] == NOWHERE) continue;
        if (p->target[other] == target && p->width[other] != p->width[piece]) return 0;
        if (p->kind[piece] == 2 && p->target[other] / p->per_host != target / p->per_host) return 0;
    }
    return 1;
}

/* Add a piece to the loads of the ranks from `first` to `last`. */
static void add_on(Placing *p, i64 piece, i64 first, i64 last) {
    i64 group = p->group[piece];
    f64 seconds[MOST_PHASES];
    for (i64 w = first; w <= last && p->adds_up; w++) p->loads[w] += p->columns[piece];
    for (i64 w = first; w <= last && !p->adds_up; w++) {
        int same = w > first;                              /* if it equals the rank before, it need not be priced */
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
        }
    }
}

static void set_fullness(Placing *p, i64 w) {              /* how full a rank already is */
    f64 all = 0, full = 0;
    for (i64 f = 0; f < p->F; f++) all += p->expected[f], full += p->expected[f] * p->powers[f * p->W + w];
    p->full[w] = full + (p->memory_weight ? all * power(p->used[w]) : 0);
}

static void put(Placing *p, i64 piece, i64 target) {
    i64 size = p->size[piece], first = target * size, last = first + size - 1;
    add_on(p, piece, first, last);
    for (i64 f = 0; f < p->F; f++) for (i64 w = first; w <= last; w++)
        p->powers[f * p->W + w] = power(p->loads[f * p->W + w] / p->expected[f]);
    for (i64 w = first; w <= last; w++) {
        p->free_[w] -= w < last ? p->head[piece] : p->tail[piece];
        p->used[w] = p->memory_weight - (f64)p->free_[w] * p->scale[w];
        if (p->few) set_fullness(p, w);
    }
    for (i64 h = first / p->per_host; h < last / p->per_host; h++) p->host_free[h] -= p->other_hosts[piece];
    p->host_free[last / p->per_host] -= p->last_host[piece];
    p->target[piece] = target;
}

static int is_alike(const Placing *p, i64 piece, i64 other) {  /* whether both have the same score everywhere */
    return p->group[piece] == p->group[other] && p->size[piece] == p->size[other] && p->tail[piece] == p->tail[other]
        && !memcmp(p->columns + piece * p->J, p->columns + other * p->J, p->J * sizeof(f64));
}

/* Scores for a piece; if the piece before was alike, only the ranks that took it have a different score now. */
static void score_next(Placing *p, i64 piece) {
    i64 size = p->size[piece];
    int again = piece && is_alike(p, piece, piece - 1);
    if (again && p->target[piece - 1] != NOWHERE) {
        i64 from = p->target[piece - 1] * size;
        score_ranks(p, piece, from, from + size);
        p->uses++;
    }
    if (again && (!p->is_short || p->uses < p->few / 2)) return;
    p->is_short = p->groups.extras && size == 1 && p->few, p->uses = 0;
    if (p->is_short) p->is_short = score_few(p, piece) > 0;
    else score_ranks(p, piece, 0, p->W);
}

static i64 best_target(const Placing *p, i64 piece) {      /* the first target with the lowest score, or NOWHERE */
    i64 size = p->size[piece], best = NOWHERE;
    f64 least = INFINITY, above = INFINITY;                /* in quanta; a score that is no lower, despite rounding */
    for (i64 target = 0; target < p->W / size; target++) {
        f64 score = p->score[target * size];
        for (i64 w = target * size + 1; w < (target + 1) * size; w++) if (p->score[w] > score) score = p->score[w];
        if (score > above) continue;                       /* saves a slow division */
        score /= p->quantum;
        if (score < least && fits(p, piece, target) && allowed(p, piece, target))
            least = floor(score), above = least * p->quantum + 1e-12 * fabs(least * p->quantum), best = target;
    }
    return best;
}

static i64 least_of(const i64 *values, i64 count) {         /* over all but the last */
    i64 least = INT64_MAX;
    for (i64 i = 0; i < count - 1; i++) least = values[i] < least ? values[i] : least;
    return least;
}

static void repeat_first(f64 *rows, i64 count, i64 across, i64 each) {  /* rows (count, across, each): as the first */
    for (i64 row = 0; row < count; row++, rows += across * each)
        for (i64 w = 1; w < across; w++) memcpy(rows + w * each, rows, each * sizeof(f64));
}

/* Pieces of the whole world, which come first: on empty devices all ranks stay equal, so one is computed. How many. */
static i64 place_on_world(Placing *p) {
    i64 piece = 0, last = p->W - 1, hosts = p->W / p->per_host, taken = 0, taken_host = 0;
    i64 room = least_of(p->free_, p->W), host_room = least_of(p->host_free, hosts);
    for (i64 i = 0; i < p->F * p->W; i++) if (p->loads[i]) return 0;
    for (i64 i = 0; i < p->G * p->W * p->k; i++) if (p->sums[i]) return 0;
    for (; piece < p->N && p->size[piece] == p->W; piece++) {
        p->target[piece] = NOWHERE;
        if (room - taken < p->head[piece] || p->free_[last] < p->tail[piece] || !allowed(p, piece, 0)
            || host_room - taken_host < p->other_hosts[piece] || p->host_free[hosts - 1] < p->last_host[piece]) continue;
        add_on(p, piece, 0, 0);
        taken += p->head[piece], p->free_[last] -= p->tail[piece];
        taken_host += p->other_hosts[piece], p->host_free[hosts - 1] -= p->last_host[piece];
        p->target[piece] = 0;
    }
    for (i64 w = 0; w < last; w++) p->free_[w] -= taken;
    for (i64 h = 0; h < hosts - 1; h++) p->host_free[h] -= taken_host;
    repeat_first(p->loads, p->F, p->W, 1), repeat_first(p->sums, p->G, p->W, p->k);
    repeat_first(p->cells, p->G * p->J, p->W, 1), repeat_first(p->group_loads, p->G * p->F, p->W, 1);
    return piece;
}

static void place_all(Placing *p) {
    i64 piece = place_on_world(p);
    for (i64 i = 0; i < p->F * p->W; i++) p->powers[i] = power(p->loads[i] / p->expected[i / p->W]);
    for (i64 w = 0; w < p->W; w++) {
        p->score[w] = 0, p->scale[w] = p->memory_weight / (f64)p->capacity[w];
        p->used[w] = p->memory_weight - (f64)p->free_[w] * p->scale[w];
    }
    for (i64 w = 0; w < p->W; w++) set_fullness(p, w);
    for (p->level = -INFINITY; piece < p->N; piece++) {
        p->target[piece] = NOWHERE;
        if (p->size[piece] < p->W) score_next(p, piece);   /* the world is the only target, so it needs no score */
        i64 best = best_target(p, piece);
        if (best == NOWHERE && p->is_short) score_ranks(p, piece, 0, p->W), p->is_short = 0, best = best_target(p, piece);
        if (best != NOWHERE) put(p, piece, best);
    }
}

/* --- from Python ------------------------------------------------------------------------------------------------- */

enum {  /* the arrays, in the order of the call; those from SUMS on are written to */
    SIZES, SCALES, GROUP, SIZE, HEAD, TAIL, OTHER_HOSTS, LAST_HOST, BEFORE, KIND, WIDTH, TERMS, COLUMNS, GROUPS,
    EXPECTED = GROUPS + GROUP_ARRAYS, CAPACITY, SUMS, CELLS, GROUP_LOADS, LOADS, FREE, HOST_FREE, TARGET, ARRAYS
};

static int read_arrays(Placing *p, void *const array[], const i64 lengths[]) {  /* 0 if a length is wrong */
    if (lengths[SIZES] != 7 || lengths[SCALES] != 2) return 0;
    const i64 *sizes = array[SIZES];
    p->N = sizes[0], p->W = sizes[1], p->F = sizes[2], p->k = sizes[3], p->per_host = sizes[4];
    p->adds_up = sizes[5], p->few = sizes[6];
    if (p->W < 1 || p->k < 1 || p->per_host < 1 || p->few < 0) return 0;
    p->quantum = ((const f64 *)array[SCALES])[0], p->memory_weight = ((const f64 *)array[SCALES])[1];
    p->group = array[GROUP], p->size = array[SIZE], p->head = array[HEAD], p->tail = array[TAIL];
    p->other_hosts = array[OTHER_HOSTS], p->last_host = array[LAST_HOST];
    p->before = array[BEFORE], p->kind = array[KIND], p->width = array[WIDTH], p->terms = array[TERMS];
    p->columns = array[COLUMNS], p->expected = array[EXPECTED], p->capacity = array[CAPACITY];
    p->sums = array[SUMS], p->cells = array[CELLS], p->group_loads = array[GROUP_LOADS], p->loads = array[LOADS];
    p->free_ = array[FREE], p->host_free = array[HOST_FREE], p->target = array[TARGET];
    if (!read_group_loads(&p->groups, array + GROUPS, lengths + GROUPS)) return 0;
    i64 N = p->N, W = p->W, G = p->G = lengths[SUMS] / (p->W * p->k), F = p->F, k = p->k, J = p->J = p->groups.columns;
    if (p->groups.F != F || F > MOST_PHASES || (p->adds_up && (F != 1 || J != 1))) return 0;
    const i64 expected[ARRAYS] = {
        7, 2, N, N, N, N, N, N, N, N, N, N * k, N * J,
        [EXPECTED] = F, W, G * W * k, G * W * J, G * F * W, F * W, W, W / p->per_host, N,
    };
    for (int i = 0; i < ARRAYS; i++) if ((i < GROUPS || i >= EXPECTED) && lengths[i] != expected[i]) return 0;
    return 1;
}

static PyObject *run(void *const array[], const i64 lengths[], const void *more) {
    (void)more;
    Placing placing = {0}, *p = &placing;
    if (!read_arrays(p, array, lengths)) return PyErr_Format(PyExc_ValueError, "an array has the wrong length");
    p->powers = malloc(((2 * p->F + 5) * p->W + p->J) * sizeof(f64));
    if (!p->powers) return PyErr_NoMemory();
    p->seconds = p->powers + p->F * p->W, p->score = p->seconds + p->F * p->W;
    p->used = p->score + p->W, p->scale = p->used + p->W, p->full = p->scale + p->W;
    p->sorted = p->full + p->W, p->with = p->sorted + p->W;
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
