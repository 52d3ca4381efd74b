/* The least prices of tables in the nodes of a bound, compiled: the same as TablePrices of phase_prices.py by array
   operations, to the last bit, in a seventh of the time. compiled_prices.py prepares its arrays and calls it.

   From top to bottom: prices of pieces by the multipliers of a node; additions for big pieces; the cheapest splits of
   columns, and single options; the least price of each table in each group; and the arrays that Python passes.

   Legend, as in Python: K nodes, N pieces, G fusion groups, J planes, o options, m modes of a family, n width steps,
   w options that span the world, c cells: a different table in a group. */
#include "splits.h"
#include <stdlib.h>

#define SHARES 4                                           /* REST_SHARES of phase_prices.py */
#define SHRUNK (1 - 1e-9)  /* as in dual_feasible.py, like the next two */
#define MOST_SHARE 2.0
enum { CUTOFF, STEPS };    /* kinds of functions; any other is COUNT */
enum { SIZES, GROUP, READY, INVERSE, OWN, LEAST_OWN, REST, IN_STEPS, ALONE, ALONE_REST, FITS, SIZE, WEIGHT, FAMILIES, COUNT,
       SHARE, FUNCTION, WIDE, WIDE_BYTES, WIDE_GROUP, CELL, READY_RANGE, REST_RANGE, READY_MULTIPLIER, REST_MULTIPLIER, BYTE_PRICE,
       MIX, DUAL, STEP_MULTIPLIER, FILLED, PLANE, TAKEN, LEAST_PRICES, ARRAYS };

typedef struct {
    i64 N, G, J, K, D, rows, families, options, pairs, most_steps;  /* pairs: of a piece and its count, of an option */
    i64 wide, cells, world;                                /* world: ranks */
    const i64 *group, *fits, *family;                      /* (N,), (N,), (families, 2): modes, width steps */
    const i64 *wide_group, *cell;                          /* (w,), (w + rows,) */
    const f64 *wide_ready, *wide_bytes;                    /* (w, J), (w,) */
    const f64 *ready, *inverse, *own, *least_own;          /* (J, N), (J, N), (J, N): inf if it does not fit, (J,) */
    const f64 *rest, *in_steps, *alone, *alone_rest;       /* (N,); in_steps: part of rest in whole steps of width */
    const f64 *size, *weight;                              /* (N,); weight: bytes per covered rank */
    const f64 *count, *share, *function;                   /* (o, pairs), (SHARES,), (D, 2): kind, parameter */
} Pieces;

typedef struct {
    const f64 *ready, *rest, *mix, *dual;                  /* (2,), (2,), (G, J), (D,) */
    f64 ready_multiplier, rest_multiplier, step_multiplier, byte_price, taken, filled;
    int has_dual;
    i64 plane;
} Node;

static inline f64 whole(f64 x) { return (f64)(i64)x; }

/* Add the worth of a dual feasible function of the share (N,) of a rank that pieces take. */
static void add_function(const f64 *function, i64 N, f64 worth, const f64 *restrict share, f64 *restrict first) {
    f64 by = function[1], times = whole(1 / by);
    if (function[0] == CUTOFF)
        for (i64 i = 0; i < N; i++) first[i] += worth * (share[i] > 1 - by ? 1.0 : share[i] < by ? 0.0 : share[i]);
    else if (function[0] == STEPS)
        for (i64 i = 0; i < N; i++)
            first[i] += worth * (share[i] > 0.5 ? 1 - whole((1 - share[i]) / by) / times : whole(share[i] / by) / times);
    else
        for (i64 i = 0; i < N; i++) first[i] += worth * (whole(share[i] * (by + 1)) / by);
}

/* Add what pieces cost beyond their seconds because few of them fit on a rank; share (N,): a buffer. */
static void add_dual(const Pieces *p, const Node *node, f64 *restrict first, f64 *restrict share) {
    f64 scale = SHRUNK / node->ready[1];
    for (i64 start = 0, end; start < p->N; start = end) {
        i64 group = p->group[start];
        for (end = start + 1; end < p->N && p->group[end] == group; end++) {}
        for (i64 i = start; i < end; i++) share[i] = 0;
        for (i64 j = 0; j < p->J; j++) {
            f64 part = node->mix[group * p->J + j];
            const f64 *restrict ready = p->ready + j * p->N;
            for (i64 i = start; i < end; i++) share[i] += part * ready[i];
        }
    }
    for (i64 i = 0; i < p->N; i++) share[i] = smaller(share[i] * scale, MOST_SHARE);
    for (i64 d = 0; d < p->D; d++)
        if (node->dual[d] > 0) add_function(p->function + 2 * d, p->N, node->dual[d], share, first);
}

/* The worth of pieces' seconds: first (N,) in the first phase, price (N,) in all phases. */
static void price_plainly(const Pieces *p, const Node *node, f64 *restrict first, f64 *restrict price) {
    for (i64 start = 0, end; start < p->N; start = end) {  /* pieces of one group */
        i64 group = p->group[start];
        for (end = start + 1; end < p->N && p->group[end] == group; end++) {}
        for (i64 i = start; i < end; i++) first[i] = 0;
        for (i64 j = 0; j < p->J; j++) {
            f64 worth = node->ready_multiplier * node->mix[group * p->J + j];
            const f64 *restrict ready = p->ready + j * p->N;
            for (i64 i = start; i < end; i++) first[i] += worth * ready[i];
        }
    }
    if (node->has_dual) add_dual(p, node, first, price);
    for (i64 i = 0; i < p->N; i++)
        price[i] = first[i] + (p->rest[i] * node->rest_multiplier + p->in_steps[i] * node->step_multiplier);
}

/* Pieces of more than half of `ready` also pay for the part of their ranks that no other piece can use. */
static void charge_big_pieces(const Pieces *p, const Node *node, const f64 *restrict first, f64 *restrict price) {
    const f64 *restrict own = p->own + node->plane * p->N, *restrict inverse = p->inverse + node->plane * p->N;
    const f64 *restrict seconds = p->ready + node->plane * p->N, *restrict rest = p->rest;
    f64 half = node->ready[1] / 2, b = node->rest_multiplier + node->step_multiplier;
    f64 fill[SHARES] = {0}, left[SHARES];
    if (p->least_own[node->plane] <= 0) return;            /* some piece takes no time: nothing is left unused */
    for (int s = 0; s < SHARES; s++) left[s] = 1 - p->share[s];
    for (i64 i = 0; i < p->N; i++) {
        f64 beside = own[i] <= half ? inverse[i] : 0;
        f64 first_ratio = first[i] * beside, last_ratio = rest[i] * b * beside;
        for (int s = 0; s < SHARES; s++) fill[s] = larger(first_ratio + left[s] * last_ratio, fill[s]);
    }
    f64 unused[SHARES], rest_fill[SHARES];
    for (int s = 0; s < SHARES; s++) {
        rest_fill[s] = p->share[s] * b;
        unused[s] = least_product(node->ready_multiplier - fill[s], node->ready)
            + least_product(node->rest_multiplier - rest_fill[s], node->rest)
            + node->ready_multiplier * node->taken + node->filled;
    }
    for (i64 i = 0; i < p->N; i++) {
        if (!(seconds[i] > half)) continue;
        for (int s = 0; s < SHARES; s++)
            price[i] = larger(unused[s] + fill[s] * seconds[i] + rest_fill[s] * rest[i], price[i]);
    }
}

static void price_on_all_ranks(const Pieces *p, const Node *node, f64 *restrict price) {
    f64 ready = node->ready[1], rest = node->rest[1], byte_price = node->byte_price * (f64)p->world;
    for (i64 i = 0; i < p->N; i++) {
        f64 all = (price[i] + byte_price * p->weight[i]) * p->size[i];
        int fits = (p->fits[i] != 0) & (p->alone[i] <= ready) & (p->alone_rest[i] <= rest);
        price[i] = fits ? all : INFINITY;
    }
}

static void price_rows(const Pieces *p, const Node *node, f64 *first, f64 *price, f64 *best, f64 *row) {
    price_plainly(p, node, first, price);
    charge_big_pieces(p, node, first, price);
    price_on_all_ranks(p, node, price);
    for (const i64 *family = p->family; family < p->family + 2 * p->families; family += 2) {
        cover(price, family[0], family[1], p->most_steps, best, row);
        price += family[0] * family[1], row += family[0];
    }
    price_options(price, p->count, p->options, p->pairs, row);
}

/* The least price of each cell: over options that span the world, and over rows, divided by the number of ranks. */
static void price_cells(const Pieces *p, const Node *node, const f64 *row, f64 *least) {
    const i64 *cell = p->cell;
    for (i64 c = 0; c < p->cells; c++) least[c] = INFINITY;
    for (i64 o = 0; o < p->wide; o++, cell++) {
        const f64 *ready = p->wide_ready + o * p->J, *mix = node->mix + p->wide_group[o] * p->J;
        f64 price = 0;
        for (i64 j = 0; j < p->J; j++) price += ready[j] * mix[j];
        least[*cell] = smaller(price + node->byte_price * p->wide_bytes[o], least[*cell]);
    }
    for (i64 r = 0; r < p->rows; r++, cell++) least[*cell] = smaller(row[r] / (f64)p->world, least[*cell]);
}

/* --- the arrays that Python passes -------------------------------------------------------------------------------- */

static int read_pieces(Pieces *p, void *const array[], const i64 lengths[]) {  /* 0 if a length is wrong */
    const i64 *size = array[SIZES];
    if (lengths[SIZES] != 11) return 0;
    p->N = size[0], p->G = size[1], p->J = size[2], p->K = size[3], p->rows = size[4], p->options = size[5];
    p->pairs = size[6], p->most_steps = size[7], p->wide = size[8], p->cells = size[9], p->world = size[10];
    p->families = lengths[FAMILIES] / 2;
    p->group = array[GROUP], p->ready = array[READY], p->inverse = array[INVERSE], p->own = array[OWN];
    p->least_own = array[LEAST_OWN], p->rest = array[REST], p->in_steps = array[IN_STEPS], p->alone = array[ALONE];
    p->alone_rest = array[ALONE_REST], p->fits = array[FITS], p->size = array[SIZE], p->weight = array[WEIGHT], p->family = array[FAMILIES];
    p->count = array[COUNT], p->share = array[SHARE], p->function = array[FUNCTION], p->D = lengths[FUNCTION] / 2;
    p->wide_ready = array[WIDE], p->wide_bytes = array[WIDE_BYTES], p->wide_group = array[WIDE_GROUP], p->cell = array[CELL];
    i64 N = p->N, J = p->J, K = p->K, pieces = p->options * p->pairs, rows = p->options;
    const i64 expected[ARRAYS] = {11, N, J * N, J * N, J * N, J, N, N, N, N, N, N, N, 2 * p->families, pieces, SHARES,
                                  2 * p->D, J * p->wide, p->wide, p->wide, p->wide + p->rows, 2 * K, 2 * K, K, K, K,
                                  K * p->G * J, K * p->D, K, K, K, K, K * p->cells};
    for (int i = 0; i < ARRAYS; i++) if (lengths[i] != expected[i]) return 0;
    for (i64 i = 0; i < p->wide + p->rows; i++) if (p->cell[i] < 0 || p->cell[i] >= p->cells) return 0;
    for (i64 i = 0; i < p->families; i++) pieces += p->family[2 * i] * p->family[2 * i + 1], rows += p->family[2 * i];
    return pieces == N && rows == p->rows;
}

static Node node_of(const Pieces *p, void *const array[], i64 k) {
    int has_dual = 0;
    for (i64 d = k * p->D; d < (k + 1) * p->D; d++) has_dual |= ((const f64 *)array[DUAL])[d] > 0;
    return (Node){
        (const f64 *)array[READY_RANGE] + 2 * k, (const f64 *)array[REST_RANGE] + 2 * k,
        (const f64 *)array[MIX] + k * p->G * p->J, (const f64 *)array[DUAL] + k * p->D,
        ((const f64 *)array[READY_MULTIPLIER])[k], ((const f64 *)array[REST_MULTIPLIER])[k],
        ((const f64 *)array[STEP_MULTIPLIER])[k],
        ((const f64 *)array[BYTE_PRICE])[k], ((const f64 *)array[TAKEN])[k], ((const f64 *)array[FILLED])[k],
        has_dual, ((const i64 *)array[PLANE])[k],
    };
}

static PyObject *run(void *const array[], const i64 lengths[], const void *more) {
    (void)more;
    Pieces pieces = {0}, *p = &pieces;
    if (!read_pieces(p, array, lengths)) return PyErr_Format(PyExc_ValueError, "an array has the wrong length");
    f64 *buffer = malloc((4 * p->N + p->rows + 1) * sizeof(f64)), *row = buffer + 4 * p->N + 1;
    if (!buffer) return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    for (i64 k = 0; k < p->K; k++) {
        Node node = node_of(p, array, k);
        price_rows(p, &node, buffer, buffer + p->N, buffer + 2 * p->N, row);
        price_cells(p, &node, row, (f64 *)array[LEAST_PRICES] + k * p->cells);
    }
    Py_END_ALLOW_THREADS
    free(buffer);
    Py_RETURN_NONE;
}

static PyObject *price_arrays(PyObject *self, PyObject *arrays) {
    (void)self;
    return with_arrays(arrays, ARRAYS, LEAST_PRICES, run, NULL);
}

/* The least price (K, C) of each table in the groups that are open to it, by prices (K, C, G): TablePrices.selected. */
enum { GROUP_PRICES, OPEN, NODE_OF, SELECTED, SELECT_ARRAYS };

static PyObject *select_groups(void *const array[], const i64 lengths[], const void *more) {
    (void)more;
    const f64 *price = array[GROUP_PRICES];
    const i64 *open = array[OPEN], *node = array[NODE_OF];
    i64 K = lengths[NODE_OF], rows = lengths[SELECTED], tables = K ? rows / K : 0, groups = rows ? lengths[GROUP_PRICES] / rows : 0;
    i64 cells = tables * groups, nodes = cells ? lengths[OPEN] / cells : 0;
    int fits = rows == K * tables && lengths[GROUP_PRICES] == K * cells && lengths[OPEN] == nodes * cells;
    for (i64 k = 0; fits && k < K; k++) fits = node[k] >= 0 && node[k] < nodes;
    if (!fits) return PyErr_Format(PyExc_ValueError, "an array has the wrong length");
    for (i64 k = 0; k < K; k++) {
        const i64 *may = open + node[k] * cells;
        for (i64 t = 0; t < tables; t++, price += groups, may += groups) {
            f64 least = INFINITY;
            for (i64 g = 0; g < groups; g++) least = smaller(may[g] ? price[g] : INFINITY, least);
            ((f64 *)array[SELECTED])[k * tables + t] = least;
        }
    }
    Py_RETURN_NONE;
}

static PyObject *select_arrays(PyObject *self, PyObject *arrays) {
    (void)self;
    return with_arrays(arrays, SELECT_ARRAYS, SELECTED, select_groups, NULL);
}

/* The cheapest option of each table within some limits, the first of equally cheap ones: `Relaxation.choose`. */
enum { SECONDS, OPTION_BYTES, LARGEST, HEAVIEST, WORLDWIDE, OPTION_FITS, OPTION_GROUP, START, OPEN_GROUPS, LIMITS,
       CHOSEN, CHOSEN_SECONDS, CHOSEN_BYTES, CHOICE_ARRAYS };
enum { LIMIT, LOCAL, MOST_WEIGHT, WORLD_PENALTY, PRICE, LIMIT_COUNT };

static PyObject *choose(void *const array[], const i64 lengths[], const void *more) {
    (void)more;
    const f64 *seconds = array[SECONDS], *bytes = array[OPTION_BYTES], *largest = array[LARGEST], *limit = array[LIMITS];
    const f64 *heaviest = array[HEAVIEST];
    const i64 *worldwide = array[WORLDWIDE], *fits = array[OPTION_FITS], *group = array[OPTION_GROUP], *start = array[START];
    const i64 *open = array[OPEN_GROUPS];                  /* of all groups, or empty if all are open */
    i64 options = lengths[SECONDS], tables = lengths[CHOSEN];
    for (int i = OPTION_BYTES; i <= OPTION_GROUP; i++)
        if (lengths[i] != options) return PyErr_Format(PyExc_ValueError, "an array has the wrong length");
    if (lengths[START] != tables + 1 || lengths[LIMITS] != LIMIT_COUNT || lengths[CHOSEN_SECONDS] != tables
        || lengths[CHOSEN_BYTES] != tables || start[0] < 0 || start[tables] > options)
        return PyErr_Format(PyExc_ValueError, "an array has the wrong length");
    f64 local = limit[LOCAL] < limit[LIMIT] ? limit[LOCAL] : limit[LIMIT], dearer = 1 + limit[WORLD_PENALTY];
    for (i64 t = 0; t < tables; t++) {
        f64 least = INFINITY;
        i64 best = -1;
        for (i64 o = start[t]; o < start[t + 1]; o++) {
            if (!fits[o] || !(largest[o] <= (worldwide[o] ? limit[LIMIT] : local))) continue;
            if (!(heaviest[o] <= limit[MOST_WEIGHT])) continue;
            if (lengths[OPEN_GROUPS] && (group[o] < 0 || group[o] >= lengths[OPEN_GROUPS] || !open[group[o]])) continue;
            f64 value = worldwide[o] ? seconds[o] * dearer : seconds[o];
            if (limit[PRICE] != 0) value = value + limit[PRICE] * bytes[o];
            if (value < least) least = value, best = o;
        }
        ((i64 *)array[CHOSEN])[t] = best;
        ((f64 *)array[CHOSEN_SECONDS])[t] = best < 0 ? INFINITY : seconds[best];
        ((f64 *)array[CHOSEN_BYTES])[t] = best < 0 ? 0 : bytes[best];
    }
    Py_RETURN_NONE;
}

static PyObject *choose_options(PyObject *self, PyObject *arrays) {
    (void)self;
    return with_arrays(arrays, CHOICE_ARRAYS, CHOSEN, choose, NULL);
}

/* Least costs of splits, and the bytes of these splits: `least_cost_and_bytes` of table_totals.py. */
enum { COSTS, PIECE_BYTES, LEAST, LEAST_BYTES, SPLIT_ARRAYS };

static PyObject *split(void *const array[], const i64 lengths[], const void *more) {
    (void)more;
    i64 modes = lengths[LEAST], steps = modes ? lengths[COSTS] / modes : 0;
    if (lengths[COSTS] != modes * steps || lengths[PIECE_BYTES] != modes * steps || lengths[LEAST_BYTES] != modes)
        return PyErr_Format(PyExc_ValueError, "an array has the wrong length");
    f64 *best = malloc((steps + 1) * sizeof(f64));         /* best[empty] covers all steps but `empty` */
    if (!best) return PyErr_NoMemory();
    for (i64 m = 0; m < modes; m++) {
        const f64 *cost = (const f64 *)array[COSTS] + m * steps, *bytes = (const f64 *)array[PIECE_BYTES] + m * steps;
        f64 weight = 0;
        best[steps] = 0;
        for (i64 empty = steps - 1; empty >= 0; empty--)
            best[empty] = cheapest_last(cost, best + empty + 1, steps - empty);
        for (i64 empty = 0, last; empty < steps; empty += 1 + last) {  /* the narrowest of equally cheap last pieces */
            last = 0;
            while (last < steps - empty && cost[last] + best[empty + 1 + last] != best[empty]) last++;
            if (last == steps - empty) last = 0;
            weight += bytes[last];
        }
        ((f64 *)array[LEAST])[m] = best[0], ((f64 *)array[LEAST_BYTES])[m] = weight;
    }
    free(best);
    Py_RETURN_NONE;
}

static PyObject *split_columns(PyObject *self, PyObject *arrays) {
    (void)self;
    return with_arrays(arrays, SPLIT_ARRAYS, LEAST, split, NULL);
}

static PyMethodDef METHODS[] = {
    {"price", price_arrays, METH_O, "Price tables in groups; see compiled_prices.py."},
    {"select", select_arrays, METH_O, "The cheapest open groups; see compiled_prices.py."},
    {"split", split_columns, METH_O, "Cheapest splits; see compiled_prices.py."},
    {"choose", choose_options, METH_O, "Cheapest options; see compiled_prices.py."}, {0}};
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_prices", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__prices(void) { return PyModule_Create(&MODULE); }
