/* The least prices of tables with two hosts distinguished, compiled; host_prices.py prepares its arrays and calls it.

   From top to bottom: prices of a piece on each host; additions for big pieces; the cheapest split or option of each
   table; what its pieces take of each host; and the arrays that Python passes.

   Legend, as in Python: K price lists, U nodes, N pieces, P planes, C different tables, G fusion groups, m modes of a
   family, n width steps, o options, w options that span the world. */
#include "splits.h"
#include <stdlib.h>

#define SHARES 4
#define HOSTS 2
static const f64 SHARE[SHARES] = {0, 0.5, 1, 3};           /* REST_SHARES of phase_prices.py */
enum { SIZES, SECONDS, OWN, INVERSE, LEAST_OWN, REST, IN_STEPS, ALONE, ALONE_REST, UNFIT, SIZE, ONE, FAMILIES, COUNT, CELL, WIDE,
       COPIES, OPEN, LIMITS, NODE_OF, PRICES, PLANE, VALUE, USED, LARGEST, SELECTED, ARRAYS };
enum { READY0, READY1, REST0, REST1, STEPPED, OF_HOSTS };  /* limits of a node; then of each host: */
enum { MOST_ALONE, MOST_SECONDS, TIMES, HOST_LIMITS };     /* of a rank's pieces, of a host's; factor on the former */
enum { READY_PRICE, REST_PRICE, DISCOUNT, STEP_PRICE, HOST_PRICES };  /* of a host; discount: on its pieces */
enum { OF_RANKS, OF_HOST, LATER, WHOLE, HOST_USED };              /* seconds on a host; after both, those of worldwide options */
#define NODE_LIMITS (OF_HOSTS + HOSTS * HOST_LIMITS)
#define ALL_USED (HOSTS * HOST_USED + 1)
#define ALL_LARGEST (2 * HOSTS + 2)                        /* by host: MOST_ALONE, MOST_SECONDS; then of all: alone, alone_rest */

typedef struct {
    i64 N, P, K, U, C, G, wide, rows, families, options, pairs, world, tells;   /* tells: return selections */
    const f64 *seconds, *own, *inverse, *least_own;        /* (N,), (P, N), (P, N), (P,) */
    const f64 *rest, *in_steps, *alone, *alone_rest, *unfit, *size, *one;  /* (N,); unfit: 0 or infinity; one: 1 or 0 */
    const f64 *count, *wide_seconds, *copies;
    const i64 *family, *cell;
} Pieces;

typedef struct {
    f64 *price, *other, *best, *row, *least;               /* (N,), (N,), (2 N,), (rows,), (C,) */
    i64 *start, *steps, *which;                            /* (rows,): of a row's pieces, 0 steps for options; (C,) */
    char *host;                                            /* (N,): the host on which a piece is cheaper */
} Buffers;

/* Prices of pieces on a rank of a host: first (N,) in the first phase, cost (N,) in all; infinity if not allowed. */
static void price_plainly(const Pieces *p, const f64 *node, const f64 *of, const f64 *price, f64 *restrict first, f64 *restrict cost) {
    f64 a = price[READY_PRICE], b = price[REST_PRICE], c = price[STEP_PRICE], more = of[TIMES] - 1;
    f64 of_rank = smaller(of[MOST_ALONE], node[READY1]), of_host = of[MOST_SECONDS];
    const f64 *restrict seconds = p->seconds, *restrict rest = p->rest, *restrict alone = p->alone, *restrict one = p->one;
    for (i64 i = 0; i < p->N; i++) first[i] = a * (seconds[i] * (1 + one[i] * more));
    for (i64 i = 0; i < p->N; i++) {
        f64 out = alone[i] <= (one[i] > 0 ? of_rank : node[READY1]) ? 0 : INFINITY;
        out += seconds[i] <= (one[i] > 0 ? INFINITY : of_host) ? 0 : INFINITY;
        out += p->alone_rest[i] <= node[REST1] ? p->unfit[i] : INFINITY;
        cost[i] = first[i] + (b * rest[i] + c * p->in_steps[i]) + out;
    }
}

/* Pieces of more than half of `ready` also pay for the part of their ranks that no other piece can use. */
static void charge_big_pieces(
    const Pieces *p, const f64 *node, const f64 *price, i64 plane, const f64 *restrict first, f64 *restrict cost
) {
    const f64 *restrict own = p->own + plane * p->N, *restrict inverse = p->inverse + plane * p->N, *restrict rest = p->rest;
    f64 a = price[READY_PRICE], b = price[REST_PRICE] + price[STEP_PRICE], half = node[READY1] / 2, largest = 0;
    f64 fill[SHARES] = {0}, unused[SHARES];
    if (p->least_own[plane] <= 0) return;                  /* some piece takes no time: nothing is left unused */
    for (i64 i = 0; i < p->N; i++) largest = larger(cost[i] < INFINITY ? own[i] : 0, largest);
    if (largest <= half) return;
    for (i64 i = 0; i < p->N; i++) {
        f64 beside = (own[i] <= half) & (cost[i] < INFINITY) ? inverse[i] : 0;
        f64 first_ratio = first[i] * beside, last_ratio = b * rest[i] * beside;
        for (int s = 0; s < SHARES; s++) fill[s] = larger(first_ratio + (1 - SHARE[s]) * last_ratio, fill[s]);
    }
    for (int s = 0; s < SHARES; s++)
        unused[s] = least_product(a - fill[s], node + READY0) + least_product(price[REST_PRICE] - SHARE[s] * b, node + REST0)
            + price[STEP_PRICE] * node[STEPPED];
    for (i64 i = 0; i < p->N; i++) {
        if (!(own[i] > half)) continue;
        for (int s = 0; s < SHARES; s++)
            cost[i] = larger(unused[s] + fill[s] * own[i] + SHARE[s] * b * rest[i], cost[i]);
    }
}

/* Prices of pieces on a host, over all ranks that they cover (N,); infinite if they cannot be there. */
static void price_host(
    const Pieces *p, const f64 *node, const f64 *of, const f64 *price, i64 plane, f64 *restrict first, f64 *restrict cost
) {
    price_plainly(p, node, of, price, first, cost);
    charge_big_pieces(p, node, price, plane, first, cost);
    for (i64 i = 0; i < p->N; i++)
        cost[i] = (cost[i] - (1 - p->one[i]) * price[DISCOUNT] * p->seconds[i]) * p->size[i];
}

/* The least price (C,) of each table, and the option or row that has it: -1 if none is open. */
static void price_tables(const Pieces *p, const i64 *open, Buffers *b) {
    const f64 *cost = b->price;
    f64 *row = b->row;
    for (const i64 *family = p->family; family < p->family + 2 * p->families; family += 2) {
        cover(cost, family[0], family[1], family[1], b->best, row);
        cost += family[0] * family[1], row += family[0];
    }
    price_options(cost, p->count, p->options, p->pairs, row);
    for (i64 t = 0; t < p->C; t++) b->least[t] = INFINITY, b->which[t] = -1;
    for (i64 o = 0; o < p->wide + p->rows; o++) {
        if (!open[p->cell[o]]) continue;
        i64 table = p->cell[o] / p->G;
        f64 each = o < p->wide ? p->wide_seconds[o] : b->row[o - p->wide] / (f64)p->world;
        if (each < b->least[table]) b->least[table] = each, b->which[table] = o;
    }
}

/* Add what `count` pieces take of their host. */
static void use(const Pieces *p, i64 i, int host, f64 count, f64 *used, f64 *largest) {
    int one = p->size[i] == 1;
    f64 ranks = count * p->size[i], *of = used + host * HOST_USED, *most = largest + 2 * host + !one;
    of[one ? OF_RANKS : OF_HOST] += ranks * p->seconds[i];
    of[LATER] += ranks * p->rest[i];
    of[WHOLE] += ranks * p->in_steps[i];
    *most = larger(one ? p->alone[i] : p->seconds[i], *most);
    largest[2 * HOSTS] = larger(p->alone[i], largest[2 * HOSTS]);
    largest[2 * HOSTS + 1] = larger(p->alone_rest[i], largest[2 * HOSTS + 1]);
}

/* The same for the pieces of the cheapest cover of all columns. */
static void use_split(const Pieces *p, const Buffers *b, i64 start, i64 steps, f64 count, f64 *used, f64 *largest) {
    const f64 *cost = b->price + start;
    f64 *best = b->best;                                   /* best[empty] covers all steps but `empty` */
    best[steps] = 0;
    for (i64 empty = steps - 1; empty >= 0; empty--)
        best[empty] = cheapest_last(cost, best + empty + 1, steps - empty);
    for (i64 empty = 0, last; empty < steps; empty += 1 + last) {
        last = 0;
        while (last < steps - empty - 1 && cost[last] + best[empty + 1 + last] != best[empty]) last++;
        use(p, start + last, b->host[start + last], count, used, largest);
    }
}

static f64 use_tables(const Pieces *p, const Buffers *b, f64 *used, f64 *largest, i64 *selected) {  /* their prices */
    f64 total = 0;
    for (int i = 0; i < ALL_USED; i++) used[i] = 0;
    for (int i = 0; i < ALL_LARGEST; i++) largest[i] = 0;
    for (i64 t = 0; t < p->C; t++) {
        i64 which = b->which[t], row = which - p->wide;
        if (which < 0) return INFINITY;
        total += b->least[t] * p->copies[t];
        if (!p->tells) continue;
        selected[t] = p->cell[which];
        if (row < 0)
            used[ALL_USED - 1] += p->copies[t] * p->wide_seconds[which];
        else if (b->steps[row])
            use_split(p, b, b->start[row], b->steps[row], p->copies[t], used, largest);
        else
            for (i64 i = 0, piece = b->start[row]; i < p->pairs; i++, piece++) {
                f64 count = p->count[(row - (p->rows - p->options)) * p->pairs + i];
                if (count > 0) use(p, piece, b->host[piece], count * p->copies[t], used, largest);
            }
    }
    return total;
}

/* --- the arrays that Python passes -------------------------------------------------------------------------------- */

static int read_pieces(Pieces *p, void *const array[], const i64 lengths[]) {  /* 0 if a length is wrong */
    const i64 *size = array[SIZES];
    if (lengths[SIZES] != 11) return 0;
    p->N = size[0], p->P = size[1], p->K = size[2], p->U = size[3], p->C = size[4], p->G = size[5], p->wide = size[6];
    p->options = size[7], p->pairs = size[8], p->world = size[9], p->tells = size[10];
    p->families = lengths[FAMILIES] / 2, p->rows = lengths[CELL] - p->wide;
    p->seconds = array[SECONDS], p->own = array[OWN], p->inverse = array[INVERSE], p->least_own = array[LEAST_OWN];
    p->rest = array[REST], p->in_steps = array[IN_STEPS], p->alone = array[ALONE], p->alone_rest = array[ALONE_REST];
    p->unfit = array[UNFIT], p->size = array[SIZE], p->one = array[ONE], p->family = array[FAMILIES];
    p->count = array[COUNT], p->cell = array[CELL], p->wide_seconds = array[WIDE], p->copies = array[COPIES];
    i64 N = p->N, K = p->K, C = p->C, cells = C * p->G, pieces = p->options * p->pairs, rows = p->options;
    const i64 expected[ARRAYS] = {11, N, p->P * N, p->P * N, p->P, N, N, N, N, N, N, N, 2 * p->families, pieces,
                                  p->wide + p->rows, p->wide, C, p->U * cells, p->U * NODE_LIMITS, K, K * HOSTS * HOST_PRICES, K, K, K * ALL_USED,
                                  K * ALL_LARGEST, K * C};
    for (int i = 0; i < ARRAYS; i++) if (lengths[i] != expected[i]) return 0;
    for (i64 i = 0; i < p->wide + p->rows; i++) if (p->cell[i] < 0 || p->cell[i] >= cells) return 0;
    for (i64 i = 0; i < p->families; i++) pieces += p->family[2 * i] * p->family[2 * i + 1], rows += p->family[2 * i];
    const i64 *node = array[NODE_OF], *plane = array[PLANE];
    for (i64 k = 0; k < K; k++) if (node[k] < 0 || node[k] >= p->U || plane[k] < 0 || plane[k] >= p->P) return 0;
    return pieces == N && rows == p->rows;
}

static void place_rows(const Pieces *p, Buffers *b) {
    i64 at = 0, row = 0;
    for (const i64 *family = p->family; family < p->family + 2 * p->families; family += 2)
        for (i64 m = 0; m < family[0]; m++, row++, at += family[1]) b->start[row] = at, b->steps[row] = family[1];
    for (; row < p->rows; row++, at += p->pairs) b->start[row] = at, b->steps[row] = 0;
}

static void price_list(const Pieces *p, void *const array[], i64 k, Buffers *b) {
    i64 node = ((const i64 *)array[NODE_OF])[k];
    const f64 *limits = (const f64 *)array[LIMITS] + node * NODE_LIMITS, *of = limits + OF_HOSTS;
    const f64 *prices = (const f64 *)array[PRICES] + k * HOSTS * HOST_PRICES;
    i64 plane = ((const i64 *)array[PLANE])[k];
    price_host(p, limits, of, prices, plane, b->best, b->price);
    price_host(p, limits, of + HOST_LIMITS, prices + HOST_PRICES, plane, b->best, b->other);
    for (i64 i = 0; i < p->N; i++) {
        b->host[i] = b->other[i] < b->price[i];
        b->price[i] = smaller(b->other[i], b->price[i]);
    }
    price_tables(p, (const i64 *)array[OPEN] + node * p->C * p->G, b);
    ((f64 *)array[VALUE])[k] = use_tables(p, b, (f64 *)array[USED] + k * ALL_USED, (f64 *)array[LARGEST] + k * ALL_LARGEST,
                                          (i64 *)array[SELECTED] + k * p->C);
}

static PyObject *run(void *const array[], const i64 lengths[], const void *more) {
    (void)more;
    Pieces pieces = {0}, *p = &pieces;
    if (!read_pieces(p, array, lengths)) return PyErr_Format(PyExc_ValueError, "an array has the wrong length");
    i64 N = p->N, rows = p->rows, C = p->C;
    f64 *room = malloc((4 * N + rows + C + 1) * sizeof(f64) + (2 * rows + C + 1) * sizeof(i64) + N);
    if (!room) return PyErr_NoMemory();
    i64 *numbers = (i64 *)(room + 4 * N + rows + C + 1);
    Buffers b = {room, room + N, room + 2 * N, room + 4 * N + 1, room + 4 * N + 1 + rows,
                 numbers, numbers + rows, numbers + 2 * rows, (char *)(numbers + 2 * rows + C + 1)};
    Py_BEGIN_ALLOW_THREADS
    place_rows(p, &b);
    for (i64 k = 0; k < p->K; k++) price_list(p, array, k, &b);
    Py_END_ALLOW_THREADS
    free(room);
    Py_RETURN_NONE;
}

static PyObject *price_arrays(PyObject *self, PyObject *arrays) {
    (void)self;
    return with_arrays(arrays, ARRAYS, VALUE, run, NULL);
}

static PyMethodDef METHODS[] = {{"price", price_arrays, METH_O, "Price tables on two hosts; see host_prices.py."}, {0}};
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_hosts", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__hosts(void) { return PyModule_Create(&MODULE); }
