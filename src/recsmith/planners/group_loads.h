/* Seconds of a fusion group on a rank: in each phase a sum of maxima of linear functions, for some of which a network
   may set shares (costs/group_loads.py). Columns are the values that pieces add: linear functions, inputs of the
   network, functions with shares. */
#ifndef RECSMITH_GROUP_LOADS_H
#define RECSMITH_GROUP_LOADS_H
#include "arrays.h"
#include "elementary.h"

#define MOST_INPUTS 64     /* most inputs of a network */
#define MOST_HIDDEN 64     /* most hidden units of it */
#define MOST_EXTRAS 16     /* most shares that it sets */
#define GROUP_ARRAYS 7     /* GroupLoads.arrays of Python, passed one after the other */

typedef struct {
    i64 F, maxima, all_planes, inputs, hidden, extras, columns;  /* phases; columns: of the values that pieces add */
    i64 wide_hidden, wide_extras;                          /* padded to multiples of 4 */
    const i64 *planes;                                     /* (maxima, 3): phase, linear functions, whether with extras */
    const f64 *offset, *opening;                           /* of each linear function of the maxima; (F,) */
    /* The network in single precision, which is the model's own, input by input and padded with zeros. */
    float behind[MOST_INPUTS * MOST_HIDDEN], behind_bias[MOST_HIDDEN];  /* (inputs, wide_hidden), (wide_hidden,) */
    float gate[MOST_HIDDEN * MOST_EXTRAS], gate_bias[MOST_EXTRAS];  /* (hidden, wide_extras), (wide_extras,) */
} GroupLoads;

static i64 filled_up(i64 number) { return (number + 3) / 4 * 4; }

static void read_network(GroupLoads *g, const f64 *behind, const f64 *behind_bias, const f64 *gate, const f64 *gate_bias) {
    g->wide_hidden = filled_up(g->hidden), g->wide_extras = filled_up(g->extras);
    for (i64 m = 0; m < g->hidden; m++) {
        for (i64 i = 0; i < g->inputs; i++) g->behind[i * g->wide_hidden + m] = (float)behind[i * g->hidden + m];
        for (i64 e = 0; e < g->extras; e++) g->gate[m * g->wide_extras + e] = (float)gate[e * g->hidden + m];
        g->behind_bias[m] = (float)behind_bias[m];
    }
    for (i64 e = 0; e < g->extras; e++) g->gate_bias[e] = (float)gate_bias[e];
}

static int read_group_loads(GroupLoads *g, void *const array[], const i64 lengths[]) {  /* 0 if a length is wrong */
    g->planes = array[0], g->offset = array[1], g->opening = array[2];
    g->maxima = lengths[0] / 3, g->F = lengths[2], g->hidden = lengths[4], g->extras = lengths[6];
    g->inputs = g->hidden ? lengths[3] / g->hidden : 0, g->columns = g->inputs;
    for (const i64 *each = g->planes; each < g->planes + 3 * g->maxima; each += 3) {
        if (each[0] < 0 || each[0] >= g->F) return 0;
        g->all_planes += each[1], g->columns += each[1] * (1 + each[2] * g->extras);
    }
    if (g->inputs > MOST_INPUTS || g->hidden > MOST_HIDDEN || g->extras > MOST_EXTRAS || lengths[0] != 3 * g->maxima
        || lengths[1] != g->all_planes || lengths[3] != g->inputs * g->hidden || lengths[5] != g->extras * g->hidden)
        return 0;
    read_network(g, array[3], array[4], array[5], array[6]);
    return 1;
}

/* weight (inputs, outputs) @ input + bias, outputs a multiple of 4; sums of eight at a time stay in registers. */
static inline void layer(const float *weight, const float *bias, i64 inputs, i64 outputs, const float *input, float *output) {
    for (i64 o = 0; o < outputs; o += 8) {
        const float *row = weight + o;
        Four left = *(const Four *)(bias + o), right = left;
        if (o + 4 < outputs) {
            right = *(const Four *)(bias + o + 4);
            for (i64 i = 0; i < inputs; i++, row += outputs)
                left += *(const Four *)row * input[i], right += *(const Four *)(row + 4) * input[i];
            *(Four *)(output + o + 4) = right;
        } else for (i64 i = 0; i < inputs; i++, row += outputs) left += *(const Four *)row * input[i];
        *(Four *)(output + o) = left;
    }
}

static void name_shares(const GroupLoads *g, const f64 *input, f64 *share) {  /* a network on logarithms of sums */
    float logs[MOST_INPUTS], hidden[MOST_HIDDEN], named[MOST_EXTRAS];
    const Four none = {0, 0, 0, 0};
    for (i64 i = 0; i < g->inputs; i++) logs[i] = (float)(1 + input[i]);
    for (i64 i = g->inputs; i % 4; i++) logs[i] = 1;
    for (i64 i = 0; i < g->inputs; i += 4) *(Four *)(logs + i) = four_logs(*(const Four *)(logs + i));
    layer(g->behind, g->behind_bias, g->inputs, g->wide_hidden, logs, hidden);
    for (i64 m = 0; m < g->hidden; m += 4) *(Four *)(hidden + m) = larger_of(*(const Four *)(hidden + m), none);
    layer(g->gate, g->gate_bias, g->hidden, g->wide_extras, hidden, named);
    for (i64 e = 0; e < g->extras; e += 4) *(Four *)(named + e) = 1.0f / (1.0f + four_exps(-*(const Four *)(named + e)));
    for (i64 e = 0; e < g->extras; e++) share[e] = named[e];
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
