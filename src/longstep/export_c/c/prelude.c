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

/* NaN may be lost here: those who need to know ask `wrong`. One instruction on x86 and, by its own name, on 64-bit ARM,
 * where GCC would make branches of the comparison. */
static real larger(real a, real b)
{
#ifdef __aarch64__
    return FMAX(a, b);
#else
    return a > b ? a : b;
#endif
}

/* yes ? a : b with both computed, from a table of two: compilers make branches of conditional expressions at times, and
 * then the number of instructions would depend on the data. */
static real choose(int yes, real a, real b)
{
    const real both[2] = {b, a};
    return both[yes != 0];
}

/* The largest of n numbers that are not negative. Eight at a time, because one maximum would wait for the other. */
static real largest(const real *restrict v, int32_t n)
{
    real most[8] = {0};
    int32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; ++k) most[k] = larger(most[k], v[i + k]);
    for (int k = 0; k < n % 8; ++k) most[0] = larger(most[0], v[i + k]);
    for (int k = 1; k < 8; ++k) most[0] = larger(most[0], most[k]);
    return most[0];
}
