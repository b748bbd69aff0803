/* All cones but the zero cone, each its own dual. */
static void project_cones(longstep_workspace *work, real *z)
{
    for (int32_t i = ZERO; i < ZERO + NONNEGATIVE; ++i) z[i] = z[i] < 0 ? 0 : z[i];
#if SECOND_ORDERS
    real *cone = z + ZERO + NONNEGATIVE;
    for (int32_t i = 0; i < SECOND_ORDERS; cone += second_order[i], ++i) project_second_order(cone, second_order[i]);
#endif
#if SEMIDEFINITES
    real *matrix = z + ZERO + NONNEGATIVE + SECOND_ORDER_ROWS;
#if FINISH
    real *value = work->finish.values, *vector = work->finish.vectors;
#endif
    for (int32_t i = 0; i < SEMIDEFINITES; ++i) {
        const int32_t k = semidefinite[i];
        project_semidefinite(work, matrix, k);
#if FINISH
        /* The derivative of the projection is made of them. */
        for (int32_t l = 0; l < k; ++l) *value++ = work->matrix[l * (k + 1)];
        memcpy(vector, work->vectors, (size_t)(k * k) * sizeof *vector);
        vector += k * k;
#endif
        matrix += k * (k + 1) / 2;
    }
#else
    (void)work;
#endif
}
