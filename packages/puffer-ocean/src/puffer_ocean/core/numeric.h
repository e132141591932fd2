/* Mathematics whose results feed the state of a world: the same bits on every machine and compiler.
 *
 * libm's sin, cos, exp, pow differ between platforms, so an environment uses these instead. sqrtf, fabsf, floorf and
 * fminf/fmaxf are exact by IEEE 754 and may come from <math.h>. Everything is compiled with -ffp-contract=off. */
#ifndef OC_NUMERIC_H
#define OC_NUMERIC_H

#include <stdint.h>

#define OC_PI 3.14159265358979323846f

static inline float oc_clamp(float x, float low, float high) {
    return x < low ? low : (x > high ? high : x);
}

static inline int oc_clamp_int(int x, int low, int high) {
    return x < low ? low : (x > high ? high : x);
}

/* sin x for |x| <= pi/4, error below 2^-24: the Taylor polynomial of degree 9. */
static inline float oc_sin_small(float x) {
    float y = x * x;
    return x + x * y * (-1.0f / 6 + y * (1.0f / 120 + y * (-1.0f / 5040 + y * (1.0f / 362880))));
}

/* cos x for |x| <= pi/4, error below 2^-24: the Taylor polynomial of degree 10. */
static inline float oc_cos_small(float x) {
    float y = x * x;
    float tail = -1.0f / 720 + y * (1.0f / 40320 + y * (-1.0f / 3628800));
    return 1 - y * 0.5f + y * y * (1.0f / 24 + y * tail);
}

/* sin and cos of any angle in radians, |x| <= 1e6: reduced to [-pi/4, pi/4] in double precision. */
static inline void oc_sincos(float x, float *sine, float *cosine) {
    double quarters = (double)x * 0.63661977236758134308;
    int32_t quadrant = (int32_t)(quarters + (quarters < 0 ? -0.5 : 0.5));
    float rest = (float)((double)x - (double)quadrant * 1.57079632679489661923);
    float s = oc_sin_small(rest);
    float c = oc_cos_small(rest);
    float swapped_s = (quadrant & 1) ? c : s;
    float swapped_c = (quadrant & 1) ? s : c;
    *sine = (quadrant & 2) ? -swapped_s : swapped_s;
    *cosine = ((quadrant + 1) & 2) ? -swapped_c : swapped_c;
}

static inline float oc_sin(float x) {
    float sine, cosine;
    oc_sincos(x, &sine, &cosine);
    return sine;
}

static inline float oc_cos(float x) {
    float sine, cosine;
    oc_sincos(x, &sine, &cosine);
    return cosine;
}

#endif
