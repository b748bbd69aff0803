static void backward_J_R(const real *restrict MC, real *restrict b, int32_t first, const index_t *restrict below)
{
    real *const own = b + first;
    real t[J_UP], x[J_ + R_];
    for (int k = 0; k < J_; ++k) x[k] = own[k];
    for (int k = 0; k < R_; ++k) x[J_ + k] = b[below[k]];
    for (int p = 0; p < J_UP / LANES; ++p) {
        real sum[LANES] = {0};
        for (int i = 0; i < J_ + R_; ++i)
            for (int k = 0; k < LANES; ++k) sum[k] += MC[(p * (J_ + R_) + i) * LANES + k] * x[i];
        for (int k = 0; k < LANES; ++k) t[p * LANES + k] = sum[k];
    }
    for (int k = 0; k < J_; ++k) own[k] = t[k];
}
