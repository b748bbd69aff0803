typedef longstep_real real;

static real magnitude(real a)
{
    return FABS(a);
}

/* One for NaN and infinities. A test, because compilers may cancel sums that only NaN survives. */
static int32_t wrong(real a)
{
    return !(magnitude(a) <= REAL_MAX);
}

static real larger(real a, real b)
{
    return a > b ? a : b;
}

/* The largest of n numbers that are not negative. Eight at a time, because one maximum would wait for the other. */
static real largest(const real *restrict v, int32_t n)
{
    real most[8] = {0};
    int32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; ++k) most[k] = larger(most[k], v[i + k]);
    for (; i < n; ++i) most[0] = larger(most[0], v[i]);
    for (int k = 1; k < 8; ++k) most[0] = larger(most[0], most[k]);
    return most[0];
}
