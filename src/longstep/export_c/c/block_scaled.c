static void scaled_J_R(const real *restrict MC, real *restrict b, int32_t first, const index_t *restrict below)
{
    real *const own = b + first;
    real t[J_UP] = {0}, x[R_];
    for (int k = 0; k < R_; ++k) x[k] = b[below[k]];
    ADD_COLUMNS(t, MC, x, J_UP, R_)
    for (int k = 0; k < J_; ++k) own[k] = MC[J_UP * R_ + k] * own[k] + t[k];
}
