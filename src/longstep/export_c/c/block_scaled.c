static void scaled_${j}_${r}(const real *restrict MC, real *restrict b, int32_t first, const index_t *restrict below)
{
    real *const own = b + first;
    real t[${wide}] = {0}, x[${r}];
    for (int k = 0; k < ${r}; ++k) x[k] = b[below[k]];
    ADD_COLUMNS(t, MC, x, ${wide}, ${r})
    for (int k = 0; k < ${j}; ++k) own[k] = MC[${wide} * ${r} + k] * own[k] + t[k];
}
