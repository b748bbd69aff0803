static void forward_J_R(const real *restrict C, real *restrict b, int32_t first, const index_t *restrict below)
{
    const real *const own = b + first;
    real t[R_UP] = {0};
    ADD_COLUMNS(t, C, own, R_UP, J_)
    for (int k = 0; k < R_; ++k) b[below[k]] -= t[k];
}
