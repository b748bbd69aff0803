static void forward_J_R(const real *restrict C, real *restrict b, int32_t first, const index_t *restrict below)
{
    const real *const own = b + first;
    real t[R_UP] = {0};
    for (int i = 0; i < J_FOURS; i += 4)
        for (int k = 0; k < R_UP; ++k)
            t[k] += C[i * R_UP + k] * own[i] + C[(i + 1) * R_UP + k] * own[i + 1] + C[(i + 2) * R_UP + k] * own[i + 2]
                    + C[(i + 3) * R_UP + k] * own[i + 3];
    for (int i = J_FOURS; i < J_; ++i)
        for (int k = 0; k < R_UP; ++k) t[k] += C[i * R_UP + k] * own[i];
    for (int k = 0; k < R_; ++k) b[below[k]] -= t[k];
}
