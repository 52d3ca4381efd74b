/* Exponentials and logarithms with the same bits on every processor and with every C library: the formulas of
   elementary.py, which gives the reasons. Compile with -ffp-contract=off. */
#ifndef RECSMITH_ELEMENTARY_H
#define RECSMITH_ELEMENTARY_H
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline double two_to(int64_t k) {                   /* for k of -1022 to 1023 */
    uint64_t bits = (uint64_t)(k + 1023) << 52;
    double found;
    memcpy(&found, &bits, sizeof found);
    return found;
}

static inline double scaled(double x, int64_t k) { return x * two_to(k / 2) * two_to(k - k / 2); }  /* rounded once */

static inline double grown(double x, double least, int64_t *power) {  /* m of exp(x) = 2 ** power (1 + m) */
    if (!(x > least)) x = least;
    if (x > 710) x = 710;
    double k = (x * 1.4426950408889634 + 0x1.8p52) - 0x1.8p52;  /* the nearest whole number */
    double high = x - k * 6.93147180369123816490e-01, low = k * 1.90821492927058770002e-10, r = high - low, z = r * r;
    double less = r - z * (1.66666666666666019037e-01 + z * (-2.77777777770155933842e-03 + z * (6.61375632143793436117e-05
        + z * (-1.65339022054652515390e-06 + z * 4.13813679705723846039e-08))));
    *power = (int64_t)k;
    return high - (low - (r * less) / (2 - less));
}

static inline double same_exp(double x) {
    int64_t k;
    double more = grown(x, -746, &k);
    return scaled(1 + more, k);
}

static inline double same_log(double x) {                  /* of numbers above 0; -infinity of others */
    if (!(x > 0)) return -INFINITY;
    int64_t k = 0;
    if (x < 0x1p-1022) x *= 0x1p54, k = -54;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    k += (int64_t)(bits >> 52) - 1022;
    bits = (bits & 0xfffffffffffffull) | (uint64_t)1022 << 52;
    double fraction;                                       /* 1/2 to below 1 */
    memcpy(&fraction, &bits, sizeof fraction);
    if (fraction < 0.7071067811865476) fraction *= 2, k--;
    double f = fraction - 1, s = f / (2 + f), z = s * s, half = f * f / 2;
    double more = z * (6.666666666666735130e-01 + z * (3.999999999940941908e-01 + z * (2.857142874366239149e-01
        + z * (2.222219843214978396e-01 + z * (1.818357216161805012e-01 + z * (1.531383769920937332e-01
        + z * 1.479819860511658591e-01))))));
    return f - (half - (s * (half + more) + k * 1.90821492927058770002e-10)) + k * 6.93147180369123816490e-01;
}

/* The same in single precision for four numbers at a time, for models of that precision: accurate to a few units in the
   last place. Logarithms of normal numbers above 0. */
typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t FourBits __attribute__((vector_size(16), aligned(4), may_alias));

static inline Four larger_of(Four x, Four y) {
    FourBits first = x > y;
    return (Four)((first & (FourBits)x) | (~first & (FourBits)y));
}

static inline Four four_logs(Four x) {
    FourBits bits = (FourBits)x, k = (bits - 0x3f3504f3) >> 23;  /* the bits of root 1/2 */
    Four f = (Four)(bits - (k << 23)) - 1.0f, whole = __builtin_convertvector(k, Four);
    Four s = f / (2.0f + f), z = s * s, half = f * f * 0.5f;
    Four more = z * (0.66666662693f + z * (0.40000972152f + z * (0.28498786688f + z * 0.24279078841f)));
    return f - (half - (s * (half + more) + whole * 9.0580006145e-06f)) + whole * 6.9313812256e-01f;
}

static inline Four four_exps(Four x) {                     /* exponents are limited to -87 and 87 */
    const Four least = {-87, -87, -87, -87};
    x = -larger_of(-larger_of(x, least), least);
    Four k = (x * 1.4426950408889634f + 0x1.8p23f) - 0x1.8p23f;
    Four high = x - k * 6.9314575195e-01f, low = k * 1.4286067653e-06f, r = high - low, z = r * r;
    Four less = r - z * (1.6666625440e-1f + z * -2.7667332906e-3f);
    FourBits power = (__builtin_convertvector(k, FourBits) + 127) << 23;
    return (1.0f + (high - (low - (r * less) / (2.0f - less)))) * (Four)power;
}

static inline double same_power(double x, double y) { return same_exp(y * same_log(x)); }  /* for x of 0 or more */
#endif
