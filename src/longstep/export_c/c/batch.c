
void longstep_solve_many(longstep_workspace *work, const longstep_settings *settings, int32_t count,
                         const longstep_real *parameters, const longstep_real *x, const longstep_real *y,
                         const longstep_real *s, longstep_result *results)
{
    for (int32_t i = 0; i < count; ++i) {
        const size_t k = (size_t)i;
        longstep_start start = {NULL, NULL, NULL};
        if (x != NULL) start.x = x + k * LONGSTEP_UNKNOWNS;
        if (y != NULL) start.y = y + k * LONGSTEP_CONSTRAINTS;
        if (s != NULL) start.s = s + k * LONGSTEP_CONSTRAINTS;
        longstep_solve_from(work, settings, parameters + k * LONGSTEP_PARAMETERS, x == NULL ? NULL : &start, results + k);
    }
}
