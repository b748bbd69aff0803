/* (b, c) at size one, which leaves the matrices alone and scales the solution. */
static int normalize(longstep_workspace *work)
{
    real size = 0;
    int32_t bad = 0;
    for (int32_t i = 0; i < ROWS; ++i) {
        bad += wrong(work->b[i]);
        size = larger(size, magnitude(work->b[i]));
    }
    for (int32_t i = 0; i < N; ++i) {
        bad += wrong(work->c[i]);
        size = larger(size, magnitude(work->c[i]));
    }
    size = NORMALIZED && size > 0 ? size : 1;
    for (int32_t i = 0; i < ROWS; ++i) work->b[i] /= size;
    for (int32_t i = 0; i < N; ++i) work->c[i] /= size;
    work->size = size;
    return bad == 0;
}
