/* The matrix is diagonal, and so is its inverse. */
static void solve(const real *restrict factor, real *restrict x)
{
    for (int32_t j = 0; j < N; ++j) x[j] *= factor[j];
}
