/* Finite where it must be, and bounds that admit a value; those of an equality are one number. */
static int admissible(const longstep_workspace *work)
{
    int32_t bad = 0, crossed = 0;
    for (int32_t i = 0; i < WHOLE; ++i) bad += wrong(work->q[i]);
    for (int32_t i = 0; i < ROWS; ++i) {
        /* Written so that NaN is wrong too. */
        crossed += !(work->l[i] <= work->u[i]);
        crossed += work->l[i] == (real)INFINITY || work->u[i] == -(real)INFINITY;
    }
    for (int32_t i = 0; i < EQUALITIES; ++i) crossed += !(work->l[i] == work->u[i]);
    return crossed == 0 && bad == 0;
}
