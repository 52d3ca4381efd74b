/* Costs of a table by the prices of pieces: the cheapest cover of its columns, and its options. For compiled bounds. */
#ifndef RECSMITH_SPLITS_H
#define RECSMITH_SPLITS_H
#include "../planners/arrays.h"
#include <math.h>

#define FEW_MODES 8        /* modes of a dim below which steps of one mode are computed side by side, not modes */
#define AT_ONCE 4          /* sums that are computed side by side */

static inline f64 larger(f64 x, f64 y) { return x > y ? x : y; }
static inline f64 smaller(f64 x, f64 y) { return x < y ? x : y; }
static inline f64 least_product(f64 factor, const f64 *ends) { return smaller(factor * ends[0], factor * ends[1]); }

/* The least cost of covering all width steps of one mode; back has best in reverse, so that both are read in order. */
static f64 cover_one(const f64 *restrict cost, i64 steps, f64 *restrict best, f64 *restrict back) {
    for (i64 filled = 1; filled <= steps; filled++) {
        const f64 *wide = back + steps - filled + 1;       /* wide[i]: of filled - (i + 1) steps, to add to i + 1 */
        f64 least[AT_ONCE] = {cost[filled - 1], INFINITY, INFINITY, INFINITY};
        i64 i = 0, half = filled / 2;
        for (; i + AT_ONCE <= half; i += AT_ONCE)
            for (int l = 0; l < AT_ONCE; l++) least[l] = smaller(best[i + l] + wide[i + l], least[l]);
        for (; i < half; i++) least[0] = smaller(best[i] + wide[i], least[0]);
        best[filled - 1] = smaller(smaller(least[0], least[1]), smaller(least[2], least[3]));
        back[steps - filled] = best[filled - 1];
    }
    return best[steps - 1];
}

/* Least costs (modes,) of covering all width steps with pieces of these costs (modes, steps); best: a buffer. */
static void cover(const f64 *restrict cost, i64 modes, i64 steps, i64 most_steps, f64 *restrict best, f64 *least) {
    if (steps > most_steps) {
        for (i64 m = 0; m < modes; m++) {
            f64 step = INFINITY;
            for (i64 i = 0; i < steps; i++) step = smaller(cost[m * steps + i] / (f64)(i + 1), step);
            least[m] = (f64)steps * step;
        }
        return;
    }
    if (modes < FEW_MODES) {
        for (i64 m = 0; m < modes; m++) least[m] = cover_one(cost + m * steps, steps, best, best + steps);
        return;
    }
    for (i64 i = 0; i < steps; i++) for (i64 m = 0; m < modes; m++) best[i * modes + m] = cost[m * steps + i];
    for (i64 filled = 2; filled <= steps; filled++) {
        f64 *restrict into = best + (filled - 1) * modes;
        for (i64 i = 1; i <= filled / 2; i++) {
            const f64 *narrow = best + (i - 1) * modes, *wide = best + (filled - i - 1) * modes;
            for (i64 m = 0; m < modes; m++) into[m] = smaller(narrow[m] + wide[m], into[m]);
        }
    }
    for (i64 m = 0; m < modes; m++) least[m] = best[(steps - 1) * modes + m];
}

/* Costs of options (options,), from the costs of their pieces (options, pairs) and how often an option has each. */
static void price_options(const f64 *cost, const f64 *count, i64 options, i64 pairs, f64 *row) {
    for (i64 o = 0; o < options; o++) {
        row[o] = 0;
        for (i64 i = o * pairs; i < (o + 1) * pairs; i++) row[o] += count[i] > 0 ? cost[i] * count[i] : 0;
    }
}

/* The cheapest last piece of the first `number`, each added to the cost of what it leaves. */
static f64 cheapest_last(const f64 *restrict cost, const f64 *restrict rest, i64 number) {
    f64 least[AT_ONCE] = {INFINITY, INFINITY, INFINITY, INFINITY};
    i64 i = 0;
    for (; i + AT_ONCE <= number; i += AT_ONCE)
        for (int l = 0; l < AT_ONCE; l++) least[l] = smaller(cost[i + l] + rest[i + l], least[l]);
    for (; i < number; i++) least[0] = smaller(cost[i] + rest[i], least[0]);
    return smaller(smaller(least[0], least[1]), smaller(least[2], least[3]));
}
#endif
