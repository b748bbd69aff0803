static void forward_J_R(const real *restrict C, real *restrict b, int32_t first, const index_t *restrict below)
{
    const real *const own = b + first;
    real t[R_UP];
    for (int p = 0; p < R_UP / LANES; ++p) {
        real sum[LANES] = {0};
        for (int i = 0; i < J_; ++i)
            for (int k = 0; k < LANES; ++k) sum[k] += C[(p * J_ + i) * LANES + k] * own[i];
        for (int k = 0; k < LANES; ++k) t[p * LANES + k] = sum[k];
    }
    for (int k = 0; k < R_; ++k) b[below[k]] -= t[k];
}
