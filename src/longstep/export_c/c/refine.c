/* The solution of the linear system of step k, refined: x += K^-1 (rhs - Kx). */
static void solve_refined(longstep_workspace *work, int32_t k, real *restrict x)
{
    const real *const factor = factors + (size_t)which[k] * FACTOR_SIZE;
#if REFINEMENTS
    real *restrict rhs = work->spare[0], *restrict left = work->spare[1];
    memcpy(rhs, x, sizeof work->spare[0]);
    solve(factor, x${room});
    for (int i = 0; i < REFINEMENTS; ++i) {
        multiply_K(work, k, x, left);
        for (int32_t j = 0; j < N; ++j) left[j] = rhs[j] - left[j];
        solve(factor, left${room});
        for (int32_t j = 0; j < N; ++j) x[j] += left[j];
    }
#else
    (void)work;
    solve(factor, x${room});
#endif
}
