/* LDL', column by column: the entries of L below the diagonal, then the inverse of D. */
static void solve(const real *restrict factor, real *restrict x)
{
    const real *restrict D = factor + L_ENTRIES;
    for (int32_t j = 0; j < N; ++j) {
        const real t = x[j];
        for (int32_t p = L_first[j]; p < L_first[j + 1]; ++p) x[L_row[p]] -= factor[p] * t;
    }
    for (int32_t j = N - 1; j >= 0; --j) {
        real t = D[j] * x[j];
        for (int32_t p = L_first[j]; p < L_first[j + 1]; ++p) t -= factor[p] * x[L_row[p]];
        x[j] = t;
    }
}
