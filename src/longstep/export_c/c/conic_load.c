/* (b, c) at size one, which leaves the matrices alone and scales the solution. */
static int normalize(longstep_workspace *work)
{
    real *restrict b = work->rows, *restrict c = work->columns;
    int32_t bad = 0;
    for (int32_t i = 0; i < ROWS; ++i) b[i] = magnitude(work->b[i]);
    for (int32_t i = 0; i < N; ++i) c[i] = magnitude(work->c[i]);
    for (int32_t i = 0; i < ROWS; ++i) bad += wrong(b[i]);
    for (int32_t i = 0; i < N; ++i) bad += wrong(c[i]);
    const real most = larger(largest(b, ROWS), largest(c, N));
    const real size = choose(NORMALIZED && most > 0, most, 1);
    for (int32_t i = 0; i < ROWS; ++i) work->b[i] /= size;
    for (int32_t i = 0; i < N; ++i) work->c[i] /= size;
    work->size = size;
    return bad == 0;
}
