/* The equalities' rows E: x = (EE')^-1 x by LDL', column by column, in the order of elimination. */
static void solve_normal(real *restrict x)
{
    for (int32_t j = 0; j < EQUALITIES; ++j) {
        const real t = x[j];
        for (int32_t p = normal_first[j]; p < normal_first[j + 1]; ++p) x[normal_row[p]] -= normal_value[p] * t;
    }
    for (int32_t j = EQUALITIES - 1; j >= 0; --j) {
        real t = normal_inverse[j] * x[j];
        for (int32_t p = normal_first[j]; p < normal_first[j + 1]; ++p) t -= normal_value[p] * x[normal_row[p]];
        x[j] = t;
    }
}
