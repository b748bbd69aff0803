static void backward_J_R(const real *restrict MC, real *restrict b, int32_t first, const index_t *restrict below)
{
    real *const own = b + first;
    real t[J_UP] = {0}, x[J_ + R_];
    for (int k = 0; k < J_; ++k) x[k] = own[k];
    for (int k = 0; k < R_; ++k) x[J_ + k] = b[below[k]];
    for (int i = 0; i < X_FOURS; i += 4)
        for (int k = 0; k < J_UP; ++k)
            t[k] += MC[i * J_UP + k] * x[i] + MC[(i + 1) * J_UP + k] * x[i + 1] + MC[(i + 2) * J_UP + k] * x[i + 2]
                    + MC[(i + 3) * J_UP + k] * x[i + 3];
    for (int i = X_FOURS; i < J_ + R_; ++i)
        for (int k = 0; k < J_UP; ++k) t[k] += MC[i * J_UP + k] * x[i];
    for (int k = 0; k < J_; ++k) own[k] = t[k];
}
