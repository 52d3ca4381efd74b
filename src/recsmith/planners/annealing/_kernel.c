/* Annealing of one plan, compiled: several million changes a second. kernel.py prepares its arrays and calls it.

A plan gives each table a mode, and places the mode's pieces on targets: ranks, hosts, or the world. A change moves
pieces, passes columns between them, or gives a table another option. It is applied at once, priced, and undone if it is
not accepted. The cost of a group's pieces on a rank is, in each phase, a sum of maxima of linear functions of their
summed terms, so a piece adds its seconds to each of these functions. Learned models also have a network that sets
shares of further linear functions (costs/group_loads.py); its inputs, and these functions, are sums as well.

From top to bottom: prices of placed pieces; pieces added and removed, recorded so that a change can be undone; lists of
the pieces on each rank; the kinds of changes; the loop; and the arrays that Python passes.

Legend, as in Python: T tables, M modes, U units (a mode's pieces by width), O options, W ranks, H hosts, G fusion
groups, F phases, B maxima, J linear functions of all, S slots for the pieces of a table. A cell is one fusion group on
one rank; a piece is numbered table * S + slot. Every array is contiguous, of int64 or double. Callers guarantee that
numbers in arrays are indices of what they name; only lengths are checked here.
*/
#include "../group_loads.h"
#include <stdlib.h>
#include <string.h>

#define MOST_PHASES 4
#define SLOTS 64           /* for pieces of a table, S in the legend: constant, as piece numbers are divided by it */
#define MOST_BLOCKS 32     /* most blocks of memory that one call allocates */
#define CAP 1e250          /* powers are cut there, so that their sums stay finite */
#define PARTNERS 8         /* tried partners of a swap, the best of which is taken */
#define REFRESH 65536      /* steps after which levels and sums of powers are computed anew: rounding accumulates */
#define EXACT 1e-6         /* of its value before: a sum of powers below this is summed anew, not by differences */
#define SAME_HEAT 1024     /* changes that share one temperature at first; their own is used only to accept them */
#define OVERFULL 10.0       /* of the score: the penalty of a start if all memory is missing */
#define EXCESSIVE 1.0      /* of the score: the penalty of a start if twice as many bytes move as may */
#define SIMILAR 1.2        /* times the best step: only plans with a score below are priced exactly */
#define SIZES_GIVEN 11
#define BLOCK 32           /* ranks that are searched together for the slowest */
#define FEW_RANKS 4        /* ranks of a change, above which a few of them are priced before all */
#define MOST_ASKED 4       /* most of them, in addition to the slowest */
#define MOST_COLUMNS 512   /* most columns of a cell that is priced so */
#define LINE 64            /* bytes of a cache line */
#define AT_ONCE 2          /* numbers that loops take at a time, so that compilers vectorize them */

enum { MOVE, SWAP, SHIFT, SPLIT, REPLACE, RETURN, KINDS };

/* Data that is used together is stored together, in as few cache lines as possible. */
typedef struct {  /* coverage: ranks that a piece covers; fixed: 1 if pieces do not move one by one; unit: the narrowest
                     unit, each next one a width step wider, or -1 if widths are not free; least: fewest width steps;
                     kept: 1 if the table keeps its mode and the widths of its pieces */
    i64 group, coverage, fixed, unit, least, kept, spare[2];
} Mode;

typedef struct {  /* two widths of pieces and how many of each; the next narrower and wider option */
    i64 mode, unit[2], count[2], near[2], spare;
} Option;

typedef struct { i64 mode, unit, target, sign; } Put;      /* a piece that a change adds (sign 1) or removes (-1) */

/* A unit is the seconds of J linear functions, those of the first phase first; F seconds alone on a rank; and bytes as
   integers: device head and tail, host head and tail. A cell is J sums of them, F seconds and how many pieces it has. J
   is filled up with zeros to a multiple of AT_ONCE, and so are units and cells. */
typedef struct {
    i64 T, M, U, O, W, H, G, F, J, per_host;               /* per_host: ranks of a host */
    i64 unit_size, cell_size;                              /* numbers of a unit and of a cell, see below */
    const Mode *modes;                                     /* (M,) */
    const f64 *units;                                      /* (U, unit_size) */
    const Option *options;                                 /* (O,) */
    const i64 *tried_start, *tried;                        /* (T + 1,), options of each table */
    GroupLoads loads;                                      /* of a cell in use */
    const f64 *shared;                                     /* (G,) seconds of a group in use */
    const i64 *capacity, *host_capacity;                   /* (W,), (H,) */
    i64 lucks;
    const f64 *luck, *kinds;                               /* quantiles of -log(1 - u); cumulated shares (KINDS,), and
                                                              the share that begins at a slowest rank */
    const i64 *open;                                       /* (T, W): ranks that a table may cover; NULL for all */
    /* What is held before anything moves; held_count is NULL if nothing is. Pieces (T, S) are in the order of columns:
       width, target, unit. held_coverage: ranks of a piece, or if negative, minus the number of ranks with copies;
       held_mode: -1 if a table cannot return. */
    const i64 *unit_width, *mode_copies, *column_bytes, *held_count, *held_coverage, *held_mode, *held_width,
        *held_target, *held_unit;
    i64 most_moved;                                        /* most bytes that may move */
    f64 move_price;                                        /* share of the score that moving all of them costs */
    f64 memory;                                            /* bytes of all ranks */
} Problem;

typedef struct {
    /* (T,), (T,), (T,), (T, S), (T, S); option -1: pieces as in no listed option */
    i64 *option, *mode, *count, *unit, *target;
} Plan;

typedef struct {
    const Problem *p;
    Plan plan, best;
    f64 best_s;
    uint64_t random[2];
    f64 *all_cells;                                      /* (W, G, cell_size) */
    f64 *loads, *powers;                                   /* (F, W): seconds, and (seconds / level) ** sharpness */
    f64 level[MOST_PHASES], power_sum[MOST_PHASES];        /* slowest rank's seconds at the last refresh; sum over W */
    f64 norm[MOST_PHASES], old_norm[MOST_PHASES];          /* seconds: the norm of the loads; of the current plan */
    i64 slowest[MOST_PHASES];                              /* rank of each phase, -1 if loads have changed since */
    int sharpness;
    i64 *host_of, *free_, *host_free, *in_group;           /* (W,); bytes (W,) and (H,); pieces on all ranks (G,) */
    f64 shared;                                            /* seconds that groups in use add to the step, once each */
    i64 **lists, *listed, *list_room, *place;              /* pieces on each rank, then each host; their places */
    /* what a change has touched, to price it and to undo it */
    i64 puts, cells, ranks, hosts;
    Put *put;
    f64 *old_cells, *old_loads, *old_powers, old_power_sum[MOST_PHASES], old_shared;
    i64 *old_cell, *cell_rank, *old_rank, *old_free, *old_host, *old_host_free;
    unsigned char *touched, *cell_touched, *host_touched;  /* (W,), (W, G), (H,) */
    i64 over, moved, then_over, then_moved, *moved_of;     /* bytes that do not fit; that move, in total and (T,) */
    i64 changes, *changed;                                 /* tables that may differ from the best plan's */
    unsigned char *is_changed;                             /* (T,) */
    void *memory[MOST_BLOCKS];
    int loaded;                                            /* whether the seconds of a change are in the cells */
    int blocks, failed;                                    /* failed: memory has run out */
} Annealer;

/* --- chance ------------------------------------------------------------------------------------------------------ */

static inline uint64_t draw(Annealer *a) {                 /* xorshift128+ */
    uint64_t x = a->random[0], y = a->random[1];
    a->random[0] = y;
    x ^= x << 23;
    a->random[1] = x ^ y ^ (x >> 17) ^ (y >> 26);
    return a->random[1] + y;
}

static inline i64 below(Annealer *a, i64 n) { return (i64)(((draw(a) >> 32) * (uint64_t)n) >> 32); }
static inline f64 chance(Annealer *a) { return (f64)(draw(a) >> 11) * 0x1p-53; }  /* 0 to below 1 */
static inline int heads(Annealer *a) { return (int)(draw(a) >> 63); }

/* --- prices ------------------------------------------------------------------------------------------------------ */

static f64 power(f64 ratio, int exponent) {                /* of exponents 3 * 2 ** i, by squaring */
    f64 result = ratio * ratio * ratio;
    for (exponent /= 3; exponent > 1; exponent /= 2) result *= result;
    return result < CAP ? result : CAP;
}

static inline const f64 *loads_of(const Problem *p, i64 unit) { return p->units + unit * p->unit_size + p->J; }
static inline const i64 *bytes_of(const Problem *p, i64 unit) { return (const i64 *)(loads_of(p, unit) + p->F); }
static inline f64 *sums_of(const Annealer *a, i64 cell) { return a->all_cells + cell * a->p->cell_size; }
static inline f64 *cell_loads(const Annealer *a, i64 cell) { return sums_of(a, cell) + a->p->J; }
static inline f64 *cell_count(const Annealer *a, i64 cell) { return cell_loads(a, cell) + a->p->F; }

static inline void copy(f64 *restrict to, const f64 *restrict from, i64 number) {  /* a multiple of AT_ONCE */
    for (i64 i = 0; i < number; i += AT_ONCE) memcpy(to + i, from + i, AT_ONCE * sizeof(f64));
}

static inline void add(f64 *restrict to, const f64 *restrict from, i64 number) {
    for (i64 i = 0; i < number; i += AT_ONCE) for (int l = 0; l < AT_ONCE; l++) to[i + l] += from[i + l];
}

static inline void subtract(f64 *restrict to, const f64 *restrict from, i64 number) {
    for (i64 i = 0; i < number; i += AT_ONCE) for (int l = 0; l < AT_ONCE; l++) to[i + l] -= from[i + l];
}

static void price_cell(Annealer *a, i64 cell) {
    f64 *loads = cell_loads(a, cell);
    if (*cell_count(a, cell) > 0) price_group(&a->p->loads, sums_of(a, cell), loads);
    else for (i64 f = 0; f < a->p->F; f++) loads[f] = 0;
}

/* Give a cell the price of another one if both hold the same, as on the ranks of tables split by rows or copied. */
static int price_as(Annealer *a, i64 cell, i64 other) {
    const Problem *p = a->p;
    if (memcmp(sums_of(a, cell), sums_of(a, other), p->J * sizeof(f64)) || !(*cell_count(a, cell) > 0)
        || !(*cell_count(a, other) > 0)) return 0;
    memcpy(cell_loads(a, cell), cell_loads(a, other), p->F * sizeof(f64));
    return 1;
}

static void raise_power(Annealer *a, i64 f, i64 rank) {
    i64 i = f * a->p->W + rank;
    a->powers[i] = power(a->loads[i] / a->level[f], a->sharpness);
}

static void price_rank(Annealer *a, i64 rank) {
    const Problem *p = a->p;
    for (i64 f = 0; f < p->F; f++) {
        f64 load = 0;
        for (i64 g = 0; g < p->G; g++) load += cell_loads(a, rank * p->G + g)[f];
        a->loads[f * p->W + rank] = load;
        raise_power(a, f, rank);
    }
}

static void sum_powers(Annealer *a) {
    const Problem *p = a->p;
    for (i64 f = 0; f < p->F; f++) {
        const f64 *x = a->powers + f * p->W;
        f64 even = 0, odd = 0;
        i64 w = 0;
        for (; w + 1 < p->W; w += 2) even += x[w], odd += x[w + 1];
        a->power_sum[f] = even + odd + (w < p->W ? x[w] : 0);
    }
}

static void share_seconds(Annealer *a) {                   /* seconds that each group in use adds to the step, once */
    a->shared = 0;
    for (i64 g = 0; g < a->p->G; g++) a->shared += a->in_group[g] > 0 ? a->p->shared[g] : 0;
}

static f64 score(Annealer *a) {                            /* smooth: the step with norms instead of largest loads */
    f64 seconds = a->shared;
    for (i64 f = 0; f < a->p->F; f++) {
        a->norm[f] = a->level[f] * same_power(a->power_sum[f], 1.0 / a->sharpness);
        seconds += a->norm[f];
    }
    return seconds;
}

/* A lower bound on the score, without powers: by the tangent of a root, (x / y) ** (1 / n) <= 1 + (x / y - 1) / n. */
static f64 least_score(const Annealer *a) {
    f64 seconds = a->shared, n = a->sharpness;
    for (i64 f = 0; f < a->p->F; f++) {
        f64 fall = a->power_sum[f] > 0 ? a->old_power_sum[f] / a->power_sum[f] : INFINITY;
        seconds += a->old_norm[f] * n / (n - 1 + fall);
    }
    return seconds;
}

static i64 first_largest(const f64 *x, i64 number) {       /* by blocks, whose maxima need no branches */
    i64 block = 0;
    f64 largest = -1;
    for (i64 first = 0; first < number; first += BLOCK) {
        i64 i = first, last = first + BLOCK < number ? first + BLOCK : number;
        f64 even = x[i], odd = x[i];
        for (; i + 1 < last; i += 2) even = x[i] > even ? x[i] : even, odd = x[i + 1] > odd ? x[i + 1] : odd;
        if (i < last && x[i] > even) even = x[i];
        if (odd > even) even = odd;
        if (even > largest) largest = even, block = first;
    }
    while (x[block] != largest) block++;
    return block;
}

static i64 slowest_rank(Annealer *a, i64 f) {              /* the first one if several are, for accepted plans */
    const f64 *loads = a->loads + f * a->p->W;
    i64 slowest = a->slowest[f];
    if (slowest < 0) a->slowest[f] = slowest = first_largest(loads, a->p->W);
    return slowest;
}

static f64 slowest_load(Annealer *a, i64 f) { return a->loads[f * a->p->W + slowest_rank(a, f)]; }

static f64 step(Annealer *a) {                             /* the slowest rank's seconds in each phase, added up */
    f64 seconds = a->shared;
    for (i64 f = 0; f < a->p->F; f++) seconds += slowest_load(a, f);
    return seconds;
}

static void refresh(Annealer *a) {
    const Problem *p = a->p;
    for (i64 f = 0; f < p->F; f++) a->level[f] = 1;
    for (i64 w = 0; w < p->W; w++) price_rank(a, w);
    for (i64 f = 0; f < p->F; f++) {
        a->slowest[f] = -1;
        f64 most = slowest_load(a, f);
        a->level[f] = most > 0 ? most : 1;
    }
    for (i64 w = 0; w < p->W; w++) price_rank(a, w);
    sum_powers(a);
}

/* --- pieces added and removed ------------------------------------------------------------------------------------- */

static inline void keep_cell(Annealer *a, i64 rank, i64 group) {  /* record a cell before it changes */
    const Problem *p = a->p;
    i64 cell = rank * p->G + group;
    if (a->cell_touched[cell]) return;
    a->cell_touched[cell] = 1;
    i64 n = a->cells++;
    a->old_cell[n] = cell, a->cell_rank[n] = rank;
    copy(a->old_cells + n * p->cell_size, sums_of(a, cell), p->cell_size);
}

static inline void keep_rank(Annealer *a, i64 rank) {      /* record a rank's free memory before it changes */
    if (a->touched[rank]) return;
    a->touched[rank] = 1;
    i64 n = a->ranks++, host = a->host_of[rank];
    a->old_rank[n] = rank;
    a->old_free[n] = a->free_[rank];
    if (a->host_touched[host]) return;
    a->host_touched[host] = 1;
    a->old_host[a->hosts] = host;
    a->old_host_free[a->hosts++] = a->host_free[host];
}

/* Add or remove a piece; the last rank that it covers may hold less than the others: the tail. First only its bytes and
   its group's count, because many changes are refused for memory; its seconds follow if all fits. */
static void occupy(Annealer *a, const Put *put) {
    const Problem *p = a->p;
    i64 size = p->modes[put->mode].coverage, group = p->modes[put->mode].group;
    i64 first = put->target * size, last = first + size - 1;
    const i64 *bytes = bytes_of(p, put->unit);
    for (i64 rank = first; rank <= last; rank++) {
        i64 tail = rank == last;
        a->free_[rank] -= put->sign * bytes[tail];
        a->host_free[a->host_of[rank]] -= put->sign * bytes[2 + tail];
    }
    a->in_group[group] += put->sign * size;
    if (a->in_group[group] == (put->sign > 0 ? size : 0)) share_seconds(a);
}

static inline void add_terms(const Problem *p, f64 *restrict sums, const Put *put) {  /* to a cell, or from it */
    const f64 *terms = p->units + put->unit * p->unit_size;
    f64 *count = sums + p->J + p->F;
    *count += (f64)put->sign;
    if (put->sign > 0) add(sums, terms, p->J);
    else if (*count) subtract(sums, terms, p->J);
    else for (i64 i = 0; i < p->J; i++) sums[i] = 0;
}

static inline void load(Annealer *a, const Put *put, int noted) {
    const Problem *p = a->p;
    i64 size = p->modes[put->mode].coverage, group = p->modes[put->mode].group, first = put->target * size;
    for (i64 rank = first; rank < first + size; rank++) {
        if (noted) keep_cell(a, rank, group);
        add_terms(p, sums_of(a, rank * p->G + group), put);
    }
}

static inline void fetch(const void *start, i64 bytes) {   /* prefetch cache lines that are read soon */
    for (const char *line = start, *end = line + bytes; line < end; line += LINE) __builtin_prefetch(line);
}

/* Record that a piece is added or removed. Its data is prefetched now, for many pieces at a time. */
static inline void put(Annealer *a, i64 mode, i64 unit, i64 target, i64 sign) {
    const Problem *p = a->p;
    a->put[a->puts++] = (Put){mode, unit, target, sign};
    fetch(p->units + unit * p->unit_size, p->unit_size * (i64)sizeof(f64));
}

static void occupy_puts(Annealer *a) {
    for (i64 n = 0; n < a->puts; n++) {
        i64 size = a->p->modes[a->put[n].mode].coverage, first = a->put[n].target * size;
        for (i64 rank = first; rank < first + size; rank++) keep_rank(a, rank);
        occupy(a, a->put + n);
    }
}

static int covers(const Problem *p, const Put *put, i64 rank) {
    i64 size = p->modes[put->mode].coverage;
    return rank >= put->target * size && rank < (put->target + 1) * size;
}

static void load_puts(Annealer *a) {
    const Problem *p = a->p;
    for (i64 f = 0; f < p->F; f++) {
        for (i64 n = 0; n < a->ranks; n++) {
            a->old_loads[n * p->F + f] = a->loads[f * p->W + a->old_rank[n]];
            a->old_powers[n * p->F + f] = a->powers[f * p->W + a->old_rank[n]];
        }
    }
    for (i64 n = 0; n < a->puts; n++) load(a, a->put + n, 1);
    a->loaded = 1;
}

static void follow_slowest(Annealer *a) {                  /* after an accepted change; only touched ranks differ */
    for (i64 f = 0; f < a->p->F; f++) {
        const f64 *loads = a->loads + f * a->p->W;
        i64 slowest = a->slowest[f];
        if (slowest >= 0 && a->touched[slowest]) slowest = -1;
        for (i64 n = 0; n < a->ranks && slowest >= 0; n++) {
            i64 rank = a->old_rank[n];
            if (loads[rank] > loads[slowest] || (loads[rank] == loads[slowest] && rank < slowest)) slowest = rank;
        }
        a->slowest[f] = slowest;
    }
}

static void forget(Annealer *a) {                          /* the records of an accepted change */
    for (i64 n = 0; n < a->ranks; n++) a->touched[a->old_rank[n]] = 0;
    for (i64 n = 0; n < a->cells; n++) a->cell_touched[a->old_cell[n]] = 0;
    for (i64 n = 0; n < a->hosts; n++) a->host_touched[a->old_host[n]] = 0;
    a->puts = a->cells = a->ranks = a->hosts = 0;
}

static void begin(Annealer *a) {                           /* a change; `keep_cell` and `keep_rank` record the rest */
    a->loaded = 0;
    a->old_shared = a->shared;
    memcpy(a->old_power_sum, a->power_sum, sizeof a->power_sum);
}

static void take_back(Annealer *a) {
    const Problem *p = a->p;
    for (i64 n = 0; n < a->puts; n++) {
        const Mode *mode = p->modes + a->put[n].mode;
        a->in_group[mode->group] -= a->put[n].sign * mode->coverage;
    }
    for (i64 n = 0; n < a->cells; n++) copy(sums_of(a, a->old_cell[n]), a->old_cells + n * p->cell_size, p->cell_size);
    for (i64 n = 0; n < a->hosts; n++) a->host_free[a->old_host[n]] = a->old_host_free[n];
    for (i64 n = 0; n < a->ranks; n++) a->free_[a->old_rank[n]] = a->old_free[n];
    for (i64 f = 0; a->loaded && f < p->F; f++) {
        for (i64 n = 0; n < a->ranks; n++) {
            a->loads[f * p->W + a->old_rank[n]] = a->old_loads[n * p->F + f];
            a->powers[f * p->W + a->old_rank[n]] = a->old_powers[n * p->F + f];
        }
    }
    a->shared = a->old_shared;
    memcpy(a->power_sum, a->old_power_sum, sizeof a->power_sum);
    forget(a);
}

static i64 lacking(i64 bytes) { return bytes < 0 ? -bytes : 0; }

static i64 more_lacking(const Annealer *a) {               /* more bytes lacking on touched ranks and hosts */
    i64 more = 0;
    for (i64 n = 0; n < a->ranks; n++) more += lacking(a->free_[a->old_rank[n]]) - lacking(a->old_free[n]);
    for (i64 n = 0; n < a->hosts; n++) more += lacking(a->host_free[a->old_host[n]]) - lacking(a->old_host_free[n]);
    return more;
}

static int fits(Annealer *a) {                             /* whether ranks have memory, or lack no more than before */
    int full = a->over > 0;
    for (i64 n = 0; n < a->ranks && !full; n++) {
        i64 rank = a->old_rank[n];
        full = a->free_[rank] < 0 || a->host_free[a->host_of[rank]] < 0;
    }
    a->then_over = a->over + (full ? more_lacking(a) : 0);
    return a->then_over <= a->over;
}

/* --- lists of the pieces on each rank ----------------------------------------------------------------------------- */

static i64 list_of(const Annealer *a, i64 table, i64 slot) {  /* -1 for pieces that span the world */
    const Problem *p = a->p;
    i64 size = p->modes[a->plan.mode[table]].coverage, target = a->plan.target[table * SLOTS + slot];
    return size == p->W && p->W > 1 ? -1 : size == 1 ? target : p->W + target;
}

static int lengthen(Annealer *a, i64 list) {               /* 0 if there is no memory */
    i64 size = a->list_room[list] ? 2 * a->list_room[list] : 16;
    i64 *longer = realloc(a->lists[list], size * sizeof(i64));
    if (!longer) return a->failed = 1, 0;
    a->lists[list] = longer, a->list_room[list] = size;
    return 1;
}

static void enlist(Annealer *a, i64 table) {
    for (i64 slot = 0; slot < a->plan.count[table]; slot++) {
        i64 list = list_of(a, table, slot), piece = table * SLOTS + slot;
        if (list < 0) continue;
        if (a->listed[list] == a->list_room[list] && !lengthen(a, list)) return;
        a->place[piece] = a->listed[list];
        a->lists[list][a->listed[list]++] = piece;
    }
}

static void delist(Annealer *a, i64 table) {
    for (i64 slot = 0; slot < a->plan.count[table]; slot++) {
        i64 list = list_of(a, table, slot), piece = table * SLOTS + slot;
        if (list < 0) continue;
        i64 last = a->lists[list][--a->listed[list]];
        a->lists[list][a->place[piece]] = last;
        a->place[last] = a->place[piece];
    }
}

static i64 any_piece(Annealer *a) {
    i64 table = below(a, a->p->T);
    return table * SLOTS + below(a, a->plan.count[table]);
}

static i64 slow_piece(Annealer *a, i64 phase) {            /* of a phase's slowest rank or its host; else any */
    const Problem *p = a->p;
    i64 rank = slowest_rank(a, phase);
    i64 host = p->W + a->host_of[rank], mine = a->listed[rank], all = mine + a->listed[host];
    if (!all) return any_piece(a);
    i64 i = below(a, all);
    return i < mine ? a->lists[rank][i] : a->lists[host][i - mine];
}

/* Relative load of a rank with one unit added and another removed (-1 for none): the highest over its phases. */
static f64 pressure(const Annealer *a, i64 rank, i64 more, i64 less) {
    const Problem *p = a->p;
    f64 most = 0;
    for (i64 f = 0; f < p->F; f++) {
        f64 load = a->loads[f * p->W + rank];
        if (more >= 0) load += loads_of(p, more)[f];
        if (less >= 0) load -= loads_of(p, less)[f];
        most = load > most * a->level[f] ? load / a->level[f] : most;
    }
    return most;
}

static i64 quiet_target(Annealer *a, i64 size, i64 unit, int tries) {  /* of random targets, the least loaded */
    i64 targets = a->p->W / size, best = below(a, targets);
    f64 least = INFINITY;
    for (; targets > 1 && tries > 1; tries--) {
        i64 target = below(a, targets);
        f64 most = 0;
        for (i64 rank = target * size; rank < (target + 1) * size; rank++) {
            f64 full = pressure(a, rank, unit, -1);
            most = full > most ? full : most;
        }
        if (most < least) least = most, best = target;
    }
    return best;
}

static i64 partner_of(Annealer *a, i64 piece) {            /* of some random pieces, the best to trade places with */
    const Problem *p = a->p;
    i64 here = a->plan.target[piece], unit = a->plan.unit[piece], best = any_piece(a), others[PARTNERS], number = 0;
    if (p->modes[a->plan.mode[piece / SLOTS]].coverage > 1) return best;
    f64 least = INFINITY;
    for (int tries = heads(a) ? PARTNERS : 0; tries; tries--) {
        i64 other = any_piece(a);
        if (a->plan.target[other] == here || p->modes[a->plan.mode[other / SLOTS]].coverage > 1) continue;
        __builtin_prefetch(loads_of(p, a->plan.unit[other]));
        others[number++] = other;
    }
    for (i64 i = 0; i < number; i++) {
        i64 other = others[i], there = a->plan.target[other], more = a->plan.unit[other];
        f64 mine = pressure(a, here, more, unit);
        if (mine >= least) continue;
        f64 theirs = pressure(a, there, unit, more), most = mine > theirs ? mine : theirs;
        if (most < least) least = most, best = other;
    }
    return best;
}

/* --- changes: each proposes a table (two, for a swap) as it would be; 0 if it is not possible --------------------- */

typedef struct {
    i64 table, option, mode, count, *unit, *target;
} Proposal;

static void propose_same(const Annealer *a, Proposal *to, i64 table) {
    to->table = table, to->option = a->plan.option[table], to->mode = a->plan.mode[table];
    to->count = a->plan.count[table];
    const i64 *unit = a->plan.unit + table * SLOTS, *target = a->plan.target + table * SLOTS;
    for (i64 i = 0; i < to->count; i += AT_ONCE) {           /* SLOTS is a multiple of AT_ONCE, too */
        memcpy(to->unit + i, unit + i, AT_ONCE * sizeof(i64));
        memcpy(to->target + i, target + i, AT_ONCE * sizeof(i64));
    }
}

static void drop_slot(Proposal *to, i64 slot) {
    to->count--;
    to->unit[slot] = to->unit[to->count], to->target[slot] = to->target[to->count];
}

static int open(const Annealer *a, const Proposal *to) {   /* whether all pieces are on ranks open to the table */
    const Problem *p = a->p;
    if (!p->open) return 1;
    i64 size = p->modes[to->mode].coverage;
    for (i64 i = 0; i < to->count; i++)
        for (i64 rank = to->target[i] * size; rank < (to->target[i] + 1) * size; rank++)
            if (!p->open[to->table * p->W + rank]) return 0;
    return 1;
}

static int lawful(const Annealer *a, const Proposal *to) {  /* pieces of a table that share a rank are equally wide */
    for (i64 i = 1; i < to->count; i++)
        for (i64 j = 0; j < i; j++)
            if (to->target[i] == to->target[j] && to->unit[i] != to->unit[j]) return 0;
    return open(a, to);
}

static i64 on_target(const Proposal *to, i64 target) {     /* the number of pieces on a target */
    i64 count = 0;
    for (i64 i = 0; i < to->count; i++) count += to->target[i] == target;
    return count;
}

static void widen_share(Proposal *to, i64 target, i64 columns) {  /* of every piece there; below 0 for narrower */
    for (i64 i = 0; i < to->count; i++) if (to->target[i] == target) to->unit[i] += columns;
}

static void drop_share(Proposal *to, i64 target) {
    for (i64 i = to->count - 1; i >= 0; i--) if (to->target[i] == target) drop_slot(to, i);
}

static void add_share(Proposal *to, i64 target, i64 count, i64 unit) {
    while (count--) to->unit[to->count] = unit, to->target[to->count++] = target;
}

static int moves(const Annealer *a, i64 mode) {
    return a->p->modes[mode].coverage < a->p->W && !a->p->modes[mode].fixed;
}

static int propose_move(Annealer *a, Proposal *to, i64 piece) {  /* one piece, or all of its table on that target */
    i64 slot = piece % SLOTS, mode = a->plan.mode[piece / SLOTS], here = a->plan.target[piece];
    if (!moves(a, mode)) return 0;
    i64 target = quiet_target(a, a->p->modes[mode].coverage, a->plan.unit[piece], heads(a) ? 6 : 1);
    if (target == here) return 0;
    propose_same(a, to, piece / SLOTS);
    if (heads(a)) to->target[slot] = target;
    else for (i64 i = 0; i < to->count; i++) if (to->target[i] == here) to->target[i] = target;
    return lawful(a, to);
}

static int propose_swap(Annealer *a, Proposal *to, Proposal *other, i64 piece) {
    i64 partner = partner_of(a, piece);
    i64 mine = a->plan.mode[piece / SLOTS], theirs = a->plan.mode[partner / SLOTS];
    i64 here = a->plan.target[piece], there = a->plan.target[partner];
    if (partner / SLOTS == piece / SLOTS || here == there || !moves(a, mine) || !moves(a, theirs)) return 0;
    if (a->p->modes[mine].coverage != a->p->modes[theirs].coverage) return 0;
    propose_same(a, to, piece / SLOTS);
    propose_same(a, other, partner / SLOTS);
    to->target[piece % SLOTS] = there, other->target[partner % SLOTS] = here;
    return lawful(a, to) && lawful(a, other);
}

static int propose_near(Annealer *a, Proposal *to, i64 table) {  /* a listed option of other widths, as many pieces */
    const Problem *p = a->p;
    propose_same(a, to, table);
    if (to->option < 0) return 0;
    i64 option = p->options[to->option].near[heads(a)], wide = p->options[option].count[0];
    if (option == to->option) return 0;
    to->option = option;
    for (i64 i = 0; i < to->count; i++) to->unit[i] = p->options[option].unit[i >= wide];
    return lawful(a, to);
}

static i64 greatest_divisor(i64 x, i64 y) {                /* the greatest common divisor */
    while (y) { i64 rest = x % y; x = y, y = rest; }
    return x;
}

/* Columns of a table's pieces on one rank pass to those on another: some or, half of the time, all, because tables
   would otherwise be split more often than joined, and narrow pieces cost more. Pieces on a rank stay equally wide, so
   columns (in width steps) pass in multiples that divide among the pieces on both ranks. */
static int propose_shift(Annealer *a, Proposal *to, i64 piece) {
    const Problem *p = a->p;
    i64 slot = piece % SLOTS, table = piece / SLOTS, base, sibling;
    if (a->plan.count[table] < 2 || p->modes[a->plan.mode[table]].fixed) return 0;
    if ((base = p->modes[a->plan.mode[table]].unit) < 0) return propose_near(a, to, table);
    sibling = below(a, a->plan.count[table]);
    i64 here = a->plan.target[piece], there = a->plan.target[table * SLOTS + sibling];
    if (here == there) return 0;
    propose_same(a, to, table);
    i64 mine = on_target(to, here), theirs = on_target(to, there), width = to->unit[slot] - base + 1;
    i64 quantum = mine * theirs / greatest_divisor(mine, theirs), all = mine * width / quantum;
    if (!all) return 0;
    i64 columns = quantum * (heads(a) ? all : 1 + below(a, heads(a) || all < 2 ? all : 2));
    if (width - columns / mine < p->modes[to->mode].least) columns = mine * width;
    if (columns % theirs) return 0;
    to->option = -1;
    widen_share(to, there, columns / theirs);
    if (columns == mine * width) drop_share(to, here);
    else widen_share(to, here, -columns / mine);
    return lawful(a, to);
}

/* A table's columns on a rank are cut into another number of pieces, mostly one, or some columns go to a new rank. */
static int propose_split(Annealer *a, Proposal *to, i64 piece) {
    const Problem *p = a->p;
    const Mode *mode = p->modes + a->plan.mode[piece / SLOTS];
    i64 slot = piece % SLOTS, base = mode->unit, least = mode->least;
    if (base < 0 || mode->fixed) return 0;
    propose_same(a, to, piece / SLOTS);
    i64 here = to->target[slot], mine = on_target(to, here), width = to->unit[slot] - base + 1;
    to->option = -1;
    if (heads(a)) {
        i64 pieces = heads(a) ? 1 : 1 + below(a, 8), columns = mine * width;
        if (pieces == mine || columns % pieces || columns / pieces < least) return 0;
        if (to->count - mine + pieces > SLOTS) return 0;
        drop_share(to, here);
        add_share(to, here, pieces, base + columns / pieces - 1);
        return 1;
    }
    if (width < 2 * least) return 0;
    i64 columns = least + below(a, width - 2 * least + 1), pieces = heads(a) ? mine : 1;
    i64 there = quiet_target(a, p->modes[to->mode].coverage, base + columns - 1, heads(a) ? 6 : 1);
    if (to->count + pieces > SLOTS || on_target(to, there)) return 0;
    widen_share(to, here, -columns);
    add_share(to, there, pieces, base + columns * mine / pieces - 1);
    return open(a, to);
}

static int propose_option(Annealer *a, Proposal *to, i64 piece) {  /* another option; pieces keep targets if they can */
    const Problem *p = a->p;
    i64 table = piece / SLOTS, first = p->tried_start[table], number = p->tried_start[table + 1] - first;
    if (!number) return 0;
    i64 option = p->tried[first + below(a, number)];
    if (option == a->plan.option[table]) return 0;
    propose_same(a, to, table);
    i64 size = p->modes[to->mode].coverage, count = to->count;
    int stay = heads(a);
    const Option *other = p->options + option;
    const Mode *now = p->modes + to->mode, *then = p->modes + other->mode;
    if (stay && p->loads.maxima > p->F && then != now && now->unit >= 0 && then->unit >= 0 && then->coverage == size) {
        to->option = -1, to->mode = other->mode;           /* the same pieces in another group: it may be cheaper */
        for (i64 i = 0; i < count; i++) to->unit[i] += then->unit - now->unit;
        return lawful(a, to);
    }
    to->option = option, to->mode = other->mode;
    to->count = other->count[0] + other->count[1];
    i64 covers = p->modes[to->mode].coverage;
    for (i64 i = 0; i < to->count; i++) {
        to->unit[i] = other->unit[i >= other->count[0]];
        if (!(stay && size == covers && i < count))
            to->target[i] = quiet_target(a, covers, to->unit[i], draw(a) & 3 ? 6 : 1);
    }
    return lawful(a, to);
}

static int propose_return(Annealer *a, Proposal *to, i64 piece) {  /* a table to where it was at first */
    const Problem *p = a->p;
    i64 table = piece / SLOTS;
    if (!p->held_count || p->held_mode[table] < 0 || !a->moved_of[table]) return 0;
    to->table = table, to->option = -1, to->mode = p->held_mode[table], to->count = p->held_count[table];
    memcpy(to->unit, p->held_unit + table * SLOTS, to->count * sizeof(i64));
    memcpy(to->target, p->held_target + table * SLOTS, to->count * sizeof(i64));
    return 1;
}

static int propose(Annealer *a, int kind, i64 piece, Proposal to[2]) {
    if (kind > SWAP && a->p->modes[a->plan.mode[piece / SLOTS]].kept) return 0;
    switch (kind) {
    case MOVE: return propose_move(a, to, piece);
    case SWAP: return propose_swap(a, to, to + 1, piece);
    case SHIFT: return propose_shift(a, to, piece);
    case SPLIT: return propose_split(a, to, piece);
    case RETURN: return propose_return(a, to, piece);
    default: return propose_option(a, to, piece);           /* REPLACE */
    }
}

/* --- bytes that move: as plans/moves.py counts them for pieces in the order of columns, or more ------------------- */

static i64 overlap(i64 a, i64 b, i64 c, i64 d) {           /* of [a, b) and [c, d) */
    i64 first = a > c ? a : c, last = b < d ? b : d;
    return last > first ? last - first : 0;
}

static int width_alike(const Problem *p, const Proposal *to) {  /* whether pieces have the widths of those held */
    i64 before = p->held_count[to->table], *width = (i64 *)p->held_width + to->table * SLOTS;
    uint64_t used = 0;
    if (before != to->count) return 0;
    for (i64 i = 0; i < to->count; i++) {
        i64 j = 0;
        while (j < before && (used >> j & 1 || width[j] != p->unit_width[to->unit[i]])) j++;
        if (j == before) return 0;
        used |= (uint64_t)1 << j;
    }
    return 1;
}

static i64 kept_in_place(const Problem *p, const Proposal *to) {  /* columns of pieces equal to a held one */
    const i64 *width = p->held_width + to->table * SLOTS, *target = p->held_target + to->table * SLOTS;
    uint64_t used = 0;
    i64 kept = 0;
    for (i64 i = 0; i < to->count; i++) {
        i64 j = 0, wide = p->unit_width[to->unit[i]];
        while (j < to->count && (used >> j & 1 || width[j] != wide || target[j] != to->target[i])) j++;
        if (j < to->count) used |= (uint64_t)1 << j, kept += wide;
    }
    return kept;
}

typedef struct { i64 loses, here, width, target; } Place;  /* how well a column suits a piece */

static Place place_of(const Problem *p, i64 table, i64 target, i64 width, i64 column) {
    const i64 *wide = p->held_width + table * SLOTS, *there = p->held_target + table * SLOTS;
    i64 start = 0, here = 0, most = 0;
    for (i64 j = 0; j < p->held_count[table]; start += wide[j++]) {
        if (there[j] != target) continue;
        i64 both = overlap(start, start + wide[j], column, column + width), could = wide[j] < width ? wide[j] : width;
        here = both > here ? both : here, most = could > most ? could : most;
    }
    return (Place){most - here, here, width, target};
}

static int better(Place x, Place y) {
    if (x.loses != y.loses) return x.loses < y.loses;
    if (x.here != y.here) return x.here > y.here;
    return x.width != y.width ? x.width > y.width : x.target < y.target;
}

static i64 held(const Problem *p, i64 table, Place at, i64 column) {  /* columns of a piece there that its rank held */
    const i64 *wide = p->held_width + table * SLOTS, *there = p->held_target + table * SLOTS;
    i64 start = 0, kept = 0;
    for (i64 j = 0; j < p->held_count[table]; start += wide[j++])
        if (there[j] == at.target) kept += overlap(start, start + wide[j], column, column + at.width);
    return kept;
}

static i64 kept_in_order(const Problem *p, const Proposal *to) {  /* by a greedy order of the pieces */
    uint64_t used = 0;
    i64 kept = 0, column = 0;
    for (i64 n = 0; n < to->count; n++) {
        i64 chosen = -1;
        Place best = {0, 0, 0, 0};
        for (i64 i = 0; i < to->count; i++) {
            if (used >> i & 1) continue;
            Place at = place_of(p, to->table, to->target[i], p->unit_width[to->unit[i]], column);
            if (chosen < 0 || better(at, best)) chosen = i, best = at;
        }
        used |= (uint64_t)1 << chosen;
        kept += held(p, to->table, best, column);
        column += best.width;
    }
    return kept;
}

static i64 bytes_moved(const Problem *p, const Proposal *to) {
    i64 table = to->table, bytes = p->column_bytes[table], columns = 0, kept = 0;
    if (!bytes) return 0;
    for (i64 i = 0; i < to->count; i++) columns += p->unit_width[to->unit[i]];
    i64 ranks = p->mode_copies[to->mode] ? p->W : 1, have = p->held_coverage[table];
    i64 without = p->W + have > 0 ? p->W + have : 0;       /* ranks without a copy */
    if (have < 0) return bytes * (ranks > 1 ? columns * without : without ? columns : 1);
    if (ranks > 1) return bytes * columns * ranks;
    int alike = have == p->modes[to->mode].coverage && width_alike(p, to);
    if (have == p->modes[to->mode].coverage) kept = alike ? kept_in_place(p, to) : kept_in_order(p, to);
    if (kept == columns && !(alike && to->mode == p->held_mode[table])) kept--;  /* other cuts always move bytes */
    return bytes * (columns - kept);
}

static int may_move(Annealer *a, const Proposal *to, int tables) {  /* whether the limit is kept, or no more move */
    a->then_moved = a->moved;
    if (!a->p->held_count) return 1;
    for (int i = 0; i < tables; i++) a->then_moved += bytes_moved(a->p, to + i) - a->moved_of[to[i].table];
    return a->then_moved <= a->moved || a->then_moved <= a->p->most_moved;
}

/* Factor on the score: starts that do not fit or move too much pay for it until they do not. */
static f64 penalty(const Annealer *a) {
    const Problem *p = a->p;
    if (!p->held_count) return 1;
    f64 limit = p->most_moved > 0 ? (f64)p->most_moved : 1, excess = ((f64)a->then_moved - (f64)p->most_moved) / limit;
    return 1 + p->move_price * (f64)a->then_moved / limit + (excess > 0 ? EXCESSIVE * excess : 0)
        + OVERFULL * (f64)a->then_over / p->memory;
}

/* --- the loop ---------------------------------------------------------------------------------------------------- */

static void replace_table(Annealer *a, const Proposal *to) {  /* pieces that stay as they are are left out */
    const i64 *unit = a->plan.unit + to->table * SLOTS, *target = a->plan.target + to->table * SLOTS;
    i64 mode = a->plan.mode[to->table], count = a->plan.count[to->table];
    for (i64 i = 0; i < count; i++)
        if (mode != to->mode || i >= to->count || unit[i] != to->unit[i] || target[i] != to->target[i])
            put(a, mode, unit[i], target[i], -1);
    for (i64 i = 0; i < to->count; i++)
        if (mode != to->mode || i >= count || unit[i] != to->unit[i] || target[i] != to->target[i])
            put(a, to->mode, to->unit[i], to->target[i], 1);
}

static void note_change(Annealer *a, i64 table) {
    if (a->is_changed[table]) return;
    a->is_changed[table] = 1;
    a->changed[a->changes++] = table;
}

static void adopt(Annealer *a, const Proposal *to) {
    i64 table = to->table;
    delist(a, table);
    a->plan.option[table] = to->option, a->plan.mode[table] = to->mode, a->plan.count[table] = to->count;
    memcpy(a->plan.unit + table * SLOTS, to->unit, to->count * sizeof(i64));
    memcpy(a->plan.target + table * SLOTS, to->target, to->count * sizeof(i64));
    enlist(a, table);
    if (a->p->held_count) a->moved_of[table] = bytes_moved(a->p, to);
    note_change(a, table);
}

static void remember(Annealer *a) {                        /* keep the plan if it is the best */
    const Problem *p = a->p;
    f64 seconds = step(a);
    if (!(seconds < a->best_s) || a->over > 0 || (p->held_count && a->moved > p->most_moved)) return;
    a->best_s = seconds;
    for (; a->changes > 0; a->changes--) {
        i64 t = a->changed[a->changes - 1], first = t * SLOTS;
        a->is_changed[t] = 0;
        a->best.option[t] = a->plan.option[t], a->best.mode[t] = a->plan.mode[t], a->best.count[t] = a->plan.count[t];
        memcpy(a->best.unit + first, a->plan.unit + first, a->plan.count[t] * sizeof(i64));
        memcpy(a->best.target + first, a->plan.target + first, a->plan.count[t] * sizeof(i64));
    }
}

static void price_touched(Annealer *a) {                   /* by differences; so are sums of powers if ranks are few */
    const Problem *p = a->p;
    int few = 4 * a->ranks < p->W;
    for (i64 n = 0; n < a->cells; n++) {
        const f64 *loads = cell_loads(a, a->old_cell[n]), *old = a->old_cells + n * p->cell_size + p->J;
        if (!n || !price_as(a, a->old_cell[n], a->old_cell[n - 1])) price_cell(a, a->old_cell[n]);
        for (i64 f = 0; f < p->F; f++) a->loads[f * p->W + a->cell_rank[n]] += loads[f] - old[f];
    }
    for (i64 f = 0; f < p->F; f++) {
        for (i64 n = 0; n < a->ranks; n++) {
            raise_power(a, f, a->old_rank[n]);
            if (few) a->power_sum[f] += a->powers[f * p->W + a->old_rank[n]] - a->old_powers[n * p->F + f];
        }
    }
    for (i64 f = 0; few && f < p->F; f++) few = a->power_sum[f] > EXACT * a->old_power_sum[f];
    if (!few) sum_powers(a);
}

/* Seconds (F,) of a rank after the change, whose pieces are not in the cells yet. */
static void new_loads(const Annealer *a, i64 rank, f64 *loads) {
    const Problem *p = a->p;
    f64 sums[MOST_COLUMNS], priced[MOST_PHASES];
    uint64_t seen = 0;                                     /* groups, one bit each */
    for (i64 f = 0; f < p->F; f++) loads[f] = a->loads[f * p->W + rank];
    for (i64 n = 0; n < a->puts; n++) {
        i64 group = p->modes[a->put[n].mode].group, cell = rank * p->G + group;
        if (!covers(p, a->put + n, rank) || seen >> group & 1) continue;
        seen |= (uint64_t)1 << group;
        copy(sums, sums_of(a, cell), p->cell_size);
        for (i64 m = n; m < a->puts; m++)
            if (p->modes[a->put[m].mode].group == group && covers(p, a->put + m, rank)) add_terms(p, sums, a->put + m);
        if (sums[p->J + p->F] > 0) price_group(&p->loads, sums, priced);
        else for (i64 f = 0; f < p->F; f++) priced[f] = 0;
        for (i64 f = 0; f < p->F; f++) loads[f] += priced[f] - cell_loads(a, cell)[f];
    }
}

/* Whether a change of many ranks is above a score limit by the seconds of a few of them already: those that were
   slowest, and the first that each added piece covers. All other touched ranks count as zero. */
static int is_hopeless(Annealer *a, f64 limit) {
    const Problem *p = a->p;
    if (p->G > 64 || p->cell_size > MOST_COLUMNS) return 0;
    i64 asked[MOST_PHASES + MOST_ASKED], number = 0;
    f64 sum[MOST_PHASES], loads[MOST_PHASES], seconds = a->shared, n = a->sharpness;
    for (i64 f = 0; f < p->F; f++) {
        sum[f] = a->old_power_sum[f];
        for (i64 i = 0; i < a->ranks && sum[f] > 0; i++) sum[f] -= a->powers[f * p->W + a->old_rank[i]];
        sum[f] -= 1e-9 * a->old_power_sum[f];
        if (sum[f] < 0) sum[f] = 0;
        i64 rank = slowest_rank(a, f), known = !a->touched[rank];
        for (i64 i = 0; i < number; i++) known |= asked[i] == rank;
        if (!known) asked[number++] = rank;
    }
    for (i64 m = 0, most = number + MOST_ASKED; m < a->puts && number < most; m++) {
        i64 rank = a->put[m].target * p->modes[a->put[m].mode].coverage, known = a->put[m].sign < 0;
        for (i64 i = 0; i < number; i++) known |= asked[i] == rank;
        if (!known) asked[number++] = rank;
    }
    for (i64 i = 0; i < number; i++) {
        new_loads(a, asked[i], loads);
        for (i64 f = 0; f < p->F; f++) sum[f] += power(loads[f] / a->level[f], a->sharpness);
    }
    for (i64 f = 0; f < p->F; f++)
        if (sum[f] > 0) seconds += a->old_norm[f] * n / (n - 1 + a->old_power_sum[f] / sum[f]);
    return seconds > limit * (1 + 1e-9);
}

static int kind_of(Annealer *a) {
    f64 share = chance(a);
    int kind = 0;
    for (int i = 0; i < KINDS - 1; i++) kind += share >= a->p->kinds[i];
    return kind;
}

typedef struct {
    long long first, last, steps;                          /* of this call, and of the whole cooling */
    f64 hot, cold;                                         /* temperatures as shares of the score */
    int blunt, stages;                                     /* sharpness at first, 3 * 2 ** i; doubles every stage */
} Schedule;

static f64 heat_at(const Schedule *s, i64 n) { return s->hot * same_power(s->cold / s->hot, (f64)n / s->steps); }

static void anneal(Annealer *a, Proposal to[2], const Schedule *s) {
    i64 stage_steps = s->steps / s->stages + 1;
    f64 now = 0, heat = s->hot, luckiest = a->p->luck[a->p->lucks - 1];
    i64 cools = s->first, renewed = s->first;              /* steps of the next temperature, and of the next refresh */
    for (i64 n = s->first; n < s->last && !a->failed; n++) {
        if (n == renewed) {
            i64 stage = n / stage_steps, next = (n / REFRESH + 1) * REFRESH;
            renewed = (stage + 1) * stage_steps < next ? (stage + 1) * stage_steps : next;
            a->sharpness = s->blunt << stage;
            refresh(a);
            a->then_over = a->over, a->then_moved = a->moved;
            now = score(a) * penalty(a);
            memcpy(a->old_norm, a->norm, sizeof a->norm);
            remember(a);
        }
        int kind = kind_of(a);
        i64 phase = below(a, a->p->F);
        i64 piece = chance(a) >= 1 - a->p->kinds[KINDS] ? slow_piece(a, phase) : any_piece(a);
        if (!propose(a, kind, piece, to) || !may_move(a, to, 1 + (kind == SWAP))) continue;
        begin(a);
        for (int i = 0; i <= (kind == SWAP); i++) replace_table(a, to + i);
        occupy_puts(a);
        if (!fits(a)) { take_back(a); continue; }
        i64 fortune = below(a, a->p->lucks);
        if (n >= cools) heat = heat_at(s, n), cools = n + SAME_HEAT;
        f64 most = now * (1 + heat * luckiest) * (1 + 1e-9), price = penalty(a);
        if (a->ranks > FEW_RANKS && is_hopeless(a, most / price)) { take_back(a); continue; }
        load_puts(a);
        price_touched(a);
        f64 then = least_score(a) * price;
        if (then > most) { take_back(a); continue; }       /* whatever the luck, which is seldom in the cache */
        f64 luck = a->p->luck[fortune], limit = now * (1 + heat * luck) * (1 + 1e-9);
        if (then <= limit) then = score(a) * price;
        if (then > limit || (then > now && then > now * (1 + heat_at(s, n) * luck))) { take_back(a); continue; }
        for (int i = 0; i <= (kind == SWAP); i++) adopt(a, to + i);
        follow_slowest(a);
        forget(a);
        memcpy(a->old_norm, a->norm, sizeof a->norm);
        now = then, a->over = a->then_over, a->moved = a->then_moved;
        if (now < a->best_s * SIMILAR) remember(a);
    }
}

/* --- from Python ------------------------------------------------------------------------------------------------- */

enum {  /* the arrays, in the order of the call */
    SIZES, MODES, UNITS, OPTIONS, TRIED_START, TRIED, LOADS, SHARED = LOADS + GROUP_ARRAYS,
    CAPACITY, HOST_CAPACITY, LUCK, OPEN, SHARES,
    UNIT_WIDTH, MODE_COPIES, COLUMN_BYTES, HELD_COUNT, HELD_COVERAGE, HELD_MODE, HELD_WIDTH, HELD_TARGET, HELD_UNIT,
    MOST_MOVED, MOVE_PRICE,
    PLAN, BEST = PLAN + 5, RANDOM = BEST + 5, BEST_S, ARRAYS
};
static const char *const NAMES[ARRAYS] = {
    "sizes", "modes", "units", "options", "tried_start", "tried", "planes", "offset",
    "opening", "behind", "behind_bias", "gate", "gate_bias", "shared", "capacity", "host_capacity", "luck", "open", "shares",
    "unit_width", "mode_copies", "column_bytes", "held.count", "held.coverage", "held.mode", "held.width",
    "held.target", "held.unit", "most_moved", "move_price", "plan.option", "plan.mode",
    "plan.count", "plan.unit", "plan.target", "best.option", "best.mode", "best.count", "best.unit", "best.target",
    "random", "best_s",
};

static void *room(Annealer *a, i64 number, size_t size) {
    void *memory = calloc(number > 0 ? (size_t)number : 1, size);
    a->failed |= memory == NULL;
    a->memory[a->blocks++] = memory;
    return memory;
}

static void allocate(Annealer *a, Proposal to[2]) {
    const Problem *p = a->p;
    i64 W = p->W, widest = 1;
    for (i64 m = 0; m < p->M; m++)
        if (p->modes[m].coverage < W && p->modes[m].coverage > widest) widest = p->modes[m].coverage;
    i64 cells = 4 * (SLOTS * widest + W);                  /* two tables change; only single pieces span the world */
    a->all_cells = room(a, W * p->G * p->cell_size, sizeof(f64));
    a->loads = room(a, p->F * W, sizeof(f64));
    a->powers = room(a, p->F * W, sizeof(f64));
    a->host_of = room(a, W, sizeof(i64));
    a->free_ = room(a, W, sizeof(i64));
    a->host_free = room(a, p->H, sizeof(i64));
    a->in_group = room(a, p->G, sizeof(i64));
    a->lists = room(a, W + p->H, sizeof(i64 *));
    a->listed = room(a, W + p->H, sizeof(i64));
    a->list_room = room(a, W + p->H, sizeof(i64));
    a->place = room(a, p->T * SLOTS, sizeof(i64));
    a->old_cell = room(a, cells, sizeof(i64));
    a->cell_rank = room(a, cells, sizeof(i64));
    a->put = room(a, 4 * SLOTS, sizeof(Put));
    a->old_cells = room(a, cells * p->cell_size, sizeof(f64));
    a->old_rank = room(a, W, sizeof(i64));
    a->old_free = room(a, W, sizeof(i64));
    a->old_loads = room(a, W * p->F, sizeof(f64));
    a->old_powers = room(a, W * p->F, sizeof(f64));
    a->old_host = room(a, p->H, sizeof(i64));
    a->old_host_free = room(a, p->H, sizeof(i64));
    a->touched = room(a, W, 1);
    a->host_touched = room(a, p->H, 1);
    a->cell_touched = room(a, W * p->G, 1);
    a->moved_of = room(a, p->T, sizeof(i64));
    a->changed = room(a, p->T, sizeof(i64));
    a->is_changed = room(a, p->T, 1);
    for (int i = 0; i < 2; i++) {
        to[i].unit = room(a, SLOTS, sizeof(i64));
        to[i].target = room(a, SLOTS, sizeof(i64));
    }
}

static void release(Annealer *a) {
    for (i64 i = 0; a->lists && i < a->p->W + a->p->H; i++) free(a->lists[i]);
    while (a->blocks) free(a->memory[--a->blocks]);
}

static void set_up(Annealer *a) {                          /* places the plan; `anneal` computes loads first */
    const Problem *p = a->p;
    for (i64 w = 0; w < p->W; w++) a->host_of[w] = w / p->per_host;
    memcpy(a->free_, p->capacity, p->W * sizeof(i64));
    memcpy(a->host_free, p->host_capacity, p->H * sizeof(i64));
    for (i64 t = 0; t < p->T; t++) {
        for (i64 i = 0; i < a->plan.count[t]; i++) {
            Put put = {a->plan.mode[t], a->plan.unit[t * SLOTS + i], a->plan.target[t * SLOTS + i], 1};
            occupy(a, &put);
            load(a, &put, 0);
        }
        enlist(a, t);
        note_change(a, t);
        Proposal here = {t, a->plan.option[t], a->plan.mode[t], a->plan.count[t], a->plan.unit + t * SLOTS,
                         a->plan.target + t * SLOTS};
        if (p->held_count) a->moved += a->moved_of[t] = bytes_moved(p, &here);
    }
    for (i64 cell = 0; cell < p->W * p->G; cell++) price_cell(a, cell);
    for (i64 w = 0; w < p->W; w++) a->over += lacking(a->free_[w]);
    for (i64 h = 0; h < p->H; h++) a->over += lacking(a->host_free[h]);
}

static void read_arrays(Problem *p, Annealer *a, void *const array[], const i64 lengths[]) {
    const i64 *sizes = array[SIZES];                       /* T M U O W H G F J S and those of a unit, in this order */
    p->T = sizes[0], p->M = sizes[1], p->U = sizes[2], p->O = sizes[3], p->W = sizes[4], p->H = sizes[5];
    p->G = sizes[6], p->F = sizes[7], p->J = sizes[8], p->per_host = p->W / p->H;
    p->lucks = lengths[LUCK];
    p->unit_size = sizes[10], p->cell_size = p->J + (p->F + AT_ONCE) / AT_ONCE * AT_ONCE;
    p->modes = array[MODES], p->units = array[UNITS], p->options = array[OPTIONS];
    p->tried_start = array[TRIED_START], p->tried = array[TRIED];
    p->shared = array[SHARED], p->capacity = array[CAPACITY], p->host_capacity = array[HOST_CAPACITY];
    p->luck = array[LUCK], p->kinds = array[SHARES], p->open = lengths[OPEN] ? array[OPEN] : NULL;
    if (lengths[HELD_COUNT]) {
        p->unit_width = array[UNIT_WIDTH], p->mode_copies = array[MODE_COPIES], p->column_bytes = array[COLUMN_BYTES];
        p->held_count = array[HELD_COUNT], p->held_coverage = array[HELD_COVERAGE], p->held_mode = array[HELD_MODE];
        p->held_width = array[HELD_WIDTH], p->held_target = array[HELD_TARGET], p->held_unit = array[HELD_UNIT];
    }
    a->p = p;
    a->plan = (Plan){array[PLAN], array[PLAN + 1], array[PLAN + 2], array[PLAN + 3], array[PLAN + 4]};
    a->best = (Plan){array[BEST], array[BEST + 1], array[BEST + 2], array[BEST + 3], array[BEST + 4]};
}

static const char *wrong_length(const Problem *p, const i64 lengths[]) {
    i64 TS = p->T * SLOTS, held = p->held_count != NULL;
    const i64 expected[ARRAYS] = {
        SIZES_GIVEN, p->M * 8, p->U * p->unit_size, p->O * 8, p->T + 1, p->tried_start[p->T],
        [SHARED] = p->G, p->W, p->H, p->lucks, p->open ? p->T * p->W : 0, KINDS + 1,
        held * p->U, held * p->M, held * p->T, held * p->T, held * p->T, held * p->T, held * TS, held * TS,
        held * TS, held, held,
        p->T, p->T, p->T, TS, TS, p->T, p->T, p->T, TS, TS, 2, 1,
    };
    for (int i = 0; i < ARRAYS; i++)
        if ((i < LOADS || i >= SHARED) && lengths[i] != expected[i]) return NAMES[i];
    return p->loads.F != p->F || p->loads.columns > p->J ? NAMES[LOADS] : NULL;
}

static PyObject *run(void *const array[], const i64 lengths[], const void *schedule) {
    Problem problem = {0};
    Annealer annealer = {0}, *a = &annealer;
    Proposal to[2] = {{0}, {0}};
    if (lengths[SIZES] != SIZES_GIVEN || ((const i64 *)array[SIZES])[9] != SLOTS)
        return PyErr_Format(PyExc_ValueError, "sizes: %d numbers are needed, with %d slots", SIZES_GIVEN, SLOTS);
    read_arrays(&problem, a, array, lengths);
    if (problem.F > MOST_PHASES || problem.J % AT_ONCE || problem.unit_size < problem.J + problem.F + 4 || lengths[TRIED_START] != problem.T + 1)
        return PyErr_Format(PyExc_ValueError, "sizes or tried_start: wrong length");
    if (!read_group_loads(&problem.loads, array + LOADS, lengths + LOADS))
        return PyErr_Format(PyExc_ValueError, "planes, offset or network: wrong length");
    const char *wrong = wrong_length(&problem, lengths);
    if (wrong) return PyErr_Format(PyExc_ValueError, "%s: wrong length", wrong);
    for (i64 w = 0; w < problem.W; w++) problem.memory += (f64)problem.capacity[w];
    if (problem.held_count) {
        problem.most_moved = *(const i64 *)array[MOST_MOVED];
        problem.move_price = *(const f64 *)array[MOVE_PRICE];
    }
    Py_BEGIN_ALLOW_THREADS
    allocate(a, to);
    if (!a->failed) {
        uint64_t *random = array[RANDOM];
        f64 *best_s = array[BEST_S];
        memcpy(a->random, random, sizeof a->random);
        a->best_s = *best_s;
        set_up(a);
        anneal(a, to, schedule);
        memcpy(random, a->random, sizeof a->random);
        *best_s = a->best_s;
    }
    release(a);
    Py_END_ALLOW_THREADS
    if (a->failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *anneal_arrays(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *arrays;
    Schedule schedule;
    if (!PyArg_ParseTuple(arguments, "OLLLddii", &arrays, &schedule.first, &schedule.last,
                          &schedule.steps, &schedule.hot, &schedule.cold, &schedule.blunt, &schedule.stages))
        return NULL;
    return with_arrays(arrays, ARRAYS, PLAN, run, &schedule);
}

static PyMethodDef METHODS[] = {{"anneal", anneal_arrays, METH_VARARGS, "Change a plan in place; see kernel.py."}, {0}};
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_kernel", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModule_Create(&MODULE); }
