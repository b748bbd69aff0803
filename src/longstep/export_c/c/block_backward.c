static void backward_J_R(const real *restrict MC, real *restrict b, int32_t first, const index_t *restrict below)
{
    real *const own = b + first;
    real t[J_UP] = {0}, x[J_ + R_];
    for (int k = 0; k < J_; ++k) x[k] = own[k];
    for (int k = 0; k < R_; ++k) x[J_ + k] = b[below[k]];
    ADD_COLUMNS(t, MC, x, J_UP, J_ + R_)
    for (int k = 0; k < J_; ++k) own[k] = t[k];
}
