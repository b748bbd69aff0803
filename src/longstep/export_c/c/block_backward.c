static void backward_${j}_${r}(const real *restrict MC, real *restrict b, int32_t first, const index_t *restrict below)
{
    real *const own = b + first;
    real t[${wide}] = {0}, x[${both}];
    for (int k = 0; k < ${j}; ++k) x[k] = own[k];
#if ROWS_BELOW
    for (int k = 0; k < ${r}; ++k) x[${j} + k] = b[below[k]];
#else
    (void)below;
#endif
    ADD_COLUMNS(t, MC, x, ${wide}, ${both})
    for (int k = 0; k < ${j}; ++k) own[k] = t[k];
}
