
/* For the Python wrapper: many instances with one workspace. Starts may be NULL, or have a stride each. */
void longstep_solve_many(longstep_workspace *work, const longstep_settings *settings, int32_t count,
                         const longstep_real *parameters, const longstep_real *x, const longstep_real *y,
                         const longstep_real *s, longstep_result *results);

/* The same for the numbers of the factors, where it reads them from a file. To be called before all else. */
void longstep_place_factors(const longstep_real *values);
