static void forward_${j}_${r}(const real *restrict C, real *restrict b, int32_t first, const index_t *restrict below)
{
    const real *const own = b + first;
    real t[${high}] = {0};
    ADD_COLUMNS(t, C, own, ${high}, ${j})
    for (int k = 0; k < ${r}; ++k) b[below[k]] -= t[k];
}
