/* The settings that the Python solver has by default. */
void longstep_defaults(longstep_settings *settings);

/* Solve one instance from a zero start. Returns the status, which is in the result too. */
longstep_status longstep_solve(longstep_workspace *work, const longstep_settings *settings,
                               const longstep_real *parameter, longstep_result *result);

/* The same from a warm start (NULL: from zero). It begins in the steady state, unless LONGSTEP_WARM is 1. */
longstep_status longstep_solve_from(longstep_workspace *work, const longstep_settings *settings,
                                    const longstep_real *parameter, const longstep_start *start,
                                    longstep_result *result);

/* The same in pieces, so that a caller can bound time:
 *
 *     longstep_begin(work, settings, parameter, start);
 *     while (longstep_advance(work, settings, more) == LONGSTEP_RUNNING && there is time) {}
 *     longstep_finish(work, settings, result);
 *
 * longstep_advance takes at most `more` further steps, and returns LONGSTEP_RUNNING also when max_iter is reached
 * (work->k tells). settings->steps is not looked at. */
longstep_status longstep_begin(longstep_workspace *work, const longstep_settings *settings,
                               const longstep_real *parameter, const longstep_start *start);
longstep_status longstep_advance(longstep_workspace *work, const longstep_settings *settings, int32_t more);
longstep_status longstep_finish(longstep_workspace *work, const longstep_settings *settings, longstep_result *result);

/* After an infeasible status: the certificate x (LONGSTEP_UNKNOWNS entries) of an unbounded objective or y
 * (LONGSTEP_CONSTRAINTS entries) of constraints that no point satisfies. Both pointers must be valid. */
void longstep_ray(const longstep_workspace *work, longstep_real *x, longstep_real *y);

/* sizeof(longstep_workspace) and sizeof(longstep_result), for callers in other languages. */
size_t longstep_workspace_bytes(void);
size_t longstep_result_bytes(void);
