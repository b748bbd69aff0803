/* 1 for v > 0 and 0 otherwise, by arithmetic alone: compilers make branches of comparisons here. */
static real positive(real v)
{
    return (real)0.5 + COPYSIGN((real)0.5, v - (real)1e-30);
}

static real most(real a, real b)
{
    return b + positive(a - b) * (a - b);
}

/* distance/width, and 0 where there is no width. */
static real in_widths(real distance, real width)
{
    const real wide = positive(width);
    return wide * distance / (width + 1 - wide);
}

/* Whether the parameter lies outside what training saw: farther out, in widths of the range, than any one of the training
 * parameters is from all others, this one among them; or apart from them in more entries in which they agree. */
static int32_t is_outside(const real *restrict p)
{
    real own = 0, others = 0, differing = 0;
    for (int32_t i = 0; i < SEEN_SIZE; ++i) {
        const real x = p[i], low = seen_low[i], high = seen_high[i], half = (high - low) / 2;
        const real distance = magnitude(x - low - half) - half, beyond = positive(distance - seen_rounding[i]);
        const real lower = -most(-x, -seen_second[i]), upper = most(seen_before[i], x);
        own = most(own, beyond * in_widths(distance, high - low));
        /* Negative where x itself is beyond the end. */
        others = most(others, in_widths(lower - low, most(high, x) - lower));
        others = most(others, in_widths(high - upper, upper + most(-x, -low)));
        differing += beyond * (1 - positive(high - low));
    }
    return (own > others + (real)1e-6) | (differing > (real)SEEN_LONE + (real)0.5);
}
