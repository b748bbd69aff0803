
/* Weights for the rows, and what else there is of A'W A into S. */
static void add_cones(longstep_workspace *work, real p, real *restrict weight)
{
    const real *restrict v = work->finish.v;
    for (int32_t i = 0; i < ZERO; ++i) weight[i] = weight_of(1, p);
    for (int32_t i = ZERO; i < ZERO + NONNEGATIVE; ++i) weight[i] = weight_of_row(v[i], p);
    for (int32_t i = ZERO + NONNEGATIVE; i < ROWS; ++i) weight[i] = 0;
#if SECOND_ORDERS
    for (int32_t i = 0, first = FIRST_SECOND_ORDER; i < SECOND_ORDERS; first += second_order[i++])
        add_second_order(&work->finish, v, first, second_order[i], p, weight);
#endif
#if SEMIDEFINITES
    const real *value = work->finish.values, *vector = work->finish.vectors;
    for (int32_t i = 0, first = FIRST_SEMIDEFINITE; i < SEMIDEFINITES; ++i) {
        const int32_t k = semidefinite[i];
        add_semidefinite(&work->finish, value, vector, first, k, p);
        first += k * (k + 1) / 2;
        value += k;
        vector += k * k;
    }
#endif
#if EXPONENTIALS + POWERS
    real *const bases = work->finish.bases;
    for (int32_t i = 0; i < EXPONENTIALS + POWERS; ++i) find_basis(v, i, bases + 12 * i);
    for (int32_t i = 0; i < EXPONENTIALS + POWERS; ++i) add_curved(&work->finish, bases + 12 * i, FIRST_EXPONENTIAL + 3 * i, p);
#endif
}

/* x = W x */
static void apply_weights(longstep_workspace *work, real p, real *restrict x)
{
    const real *restrict v = work->finish.v;
    for (int32_t i = 0; i < ZERO; ++i) x[i] *= weight_of(1, p);
    for (int32_t i = ZERO; i < ZERO + NONNEGATIVE; ++i) x[i] *= weight_of_row(v[i], p);
#if SECOND_ORDERS
    for (int32_t i = 0, first = FIRST_SECOND_ORDER; i < SECOND_ORDERS; first += second_order[i++])
        apply_second_order(v + first, second_order[i], p, x + first);
#endif
#if SEMIDEFINITES
    const real *value = work->finish.values, *vector = work->finish.vectors;
    for (int32_t i = 0, first = FIRST_SEMIDEFINITE; i < SEMIDEFINITES; ++i) {
        const int32_t k = semidefinite[i];
        apply_semidefinite(work, value, vector, k, p, x + first);
        first += k * (k + 1) / 2;
        value += k;
        vector += k * k;
    }
#endif
#if EXPONENTIALS + POWERS
    const real *const bases = work->finish.bases;
    for (int32_t i = 0; i < EXPONENTIALS + POWERS; ++i) apply_curved(bases + 12 * i, p, x + FIRST_EXPONENTIAL + 3 * i);
#endif
}
