/* All cones but the zero cone, or their duals: all but the curved ones are their own. */
static void project_cones(longstep_workspace *work, real *z, int dual)
{
    for (int32_t i = ZERO; i < ZERO + NONNEGATIVE; ++i) z[i] = z[i] < 0 ? 0 : z[i];
#if SECOND_ORDERS
    real *cone = z + FIRST_SECOND_ORDER;
    for (int32_t i = 0; i < SECOND_ORDERS; cone += second_order[i], ++i) project_second_order(cone, second_order[i]);
#endif
#if SEMIDEFINITES
    real *matrix = z + FIRST_SEMIDEFINITE;
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
#endif
#if EXPONENTIALS
    for (int32_t i = 0; i < EXPONENTIALS; ++i) project_exponential(z + FIRST_EXPONENTIAL + 3 * i, dual);
#endif
#if POWERS
    for (int32_t i = 0; i < POWERS; ++i) project_power(z + FIRST_POWER + 3 * i, power[i], dual);
#endif
    (void)work;
    (void)dual;
}
