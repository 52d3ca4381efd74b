/* Seconds of a fusion group on a rank: in each phase a sum of maxima of linear functions, of which a network may name
   shares (costs/group_loads.py). Columns are what pieces add: linear functions, inputs of the network, functions that
   bear shares. */
#ifndef RECSMITH_GROUP_LOADS_H
#define RECSMITH_GROUP_LOADS_H
#include "arrays.h"
#include "elementary.h"

#define MOST_INPUTS 64     /* of a network */
#define MOST_HIDDEN 64     /* units of it */
#define MOST_EXTRAS 16     /* shares that it names */
#define GROUP_ARRAYS 7     /* as GroupLoads.arrays of Python hands them over, one after the other */

typedef struct {
    i64 F, maxima, all_planes, inputs, hidden, extras, columns;  /* phases; of what pieces add */
    const i64 *planes;                                     /* (maxima, 3): phase, linear functions, whether with extras */
    const f64 *offset, *opening;                           /* of each linear function of the maxima; (F,) */
    const f64 *behind, *behind_bias, *gate_bias;           /* (inputs, hidden), (hidden,), (extras,) */
    f64 gate[MOST_HIDDEN * MOST_EXTRAS];                   /* (hidden, extras) */
} GroupLoads;

static int read_group_loads(GroupLoads *g, void *const array[], const i64 lengths[]) {  /* 0 where a length is wrong */
    g->planes = array[0], g->offset = array[1], g->opening = array[2], g->behind = array[3], g->behind_bias = array[4];
    g->gate_bias = array[6];
    g->maxima = lengths[0] / 3, g->F = lengths[2], g->hidden = lengths[4], g->extras = lengths[6];
    g->inputs = g->hidden ? lengths[3] / g->hidden : 0, g->columns = g->inputs;
    for (const i64 *each = g->planes; each < g->planes + 3 * g->maxima; each += 3) {
        if (each[0] < 0 || each[0] >= g->F) return 0;
        g->all_planes += each[1], g->columns += each[1] * (1 + each[2] * g->extras);
    }
    if (g->inputs > MOST_INPUTS || g->hidden > MOST_HIDDEN || g->extras > MOST_EXTRAS || lengths[0] != 3 * g->maxima
        || lengths[1] != g->all_planes || lengths[3] != g->inputs * g->hidden || lengths[5] != g->extras * g->hidden)
        return 0;
    for (i64 m = 0; m < g->hidden; m++)
        for (i64 e = 0; e < g->extras; e++) g->gate[m * g->extras + e] = ((const f64 *)array[5])[e * g->hidden + m];
    return 1;
}

/* weight (inputs, outputs) @ input + bias; four outputs at a time, whose sums stay in registers. */
static void layer(const f64 *weight, const f64 *bias, i64 inputs, i64 outputs, const f64 *input, f64 *output) {
    typedef f64 Pair __attribute__((vector_size(16), aligned(8), may_alias));
    i64 o = 0;
    for (; o + 3 < outputs; o += 4) {
        const f64 *row = weight + o;
        Pair left = *(const Pair *)(bias + o), right = *(const Pair *)(bias + o + 2);
        for (i64 i = 0; i < inputs; i++, row += outputs)
            left += *(const Pair *)row * input[i], right += *(const Pair *)(row + 2) * input[i];
        *(Pair *)(output + o) = left, *(Pair *)(output + o + 2) = right;
    }
    for (; o < outputs; o++) {
        f64 sum = bias[o];
        for (i64 i = 0; i < inputs; i++) sum += weight[i * outputs + o] * input[i];
        output[o] = sum;
    }
}

static void name_shares(const GroupLoads *g, const f64 *input, f64 *share) {  /* a network of logarithms of sums */
    f64 logs[MOST_INPUTS], hidden[MOST_HIDDEN];
    for (i64 i = 0; i < g->inputs; i++) logs[i] = (float)same_log(1 + input[i]);  /* the model itself has single precision here */
    layer(g->behind, g->behind_bias, g->inputs, g->hidden, logs, hidden);
    for (i64 m = 0; m < g->hidden; m++) hidden[m] = hidden[m] > 0 ? hidden[m] : 0;
    layer(g->gate, g->gate_bias, g->hidden, g->extras, hidden, share);
    for (i64 e = 0; e < g->extras; e++) share[e] = 1 / (1 + same_exp(-share[e]));
}

static inline void price_group(const GroupLoads *g, const f64 *sums, f64 *loads) {  /* (F,) of summed columns */
    const f64 *offset = g->offset, *extra = sums + g->all_planes + g->inputs;
    f64 share[MOST_EXTRAS];
    for (i64 f = 0; f < g->F; f++) loads[f] = g->opening[f];
    if (g->extras) name_shares(g, sums + g->all_planes, share);
    for (const i64 *each = g->planes; each < g->planes + 3 * g->maxima; each += 3) {
        f64 most = 0;
        for (i64 j = 0; j < each[1]; j++) {
            f64 seconds = *sums++ - *offset++;
            if (each[2]) for (i64 e = 0; e < g->extras; e++) seconds += share[e] * *extra++;
            most = seconds > most ? seconds : most;
        }
        loads[each[0]] += most;
    }
}
#endif
