
typedef struct {
    longstep_real v[LONGSTEP_FREE_], z[LONGSTEP_INNER_], y[LONGSTEP_INNER_];
    longstep_real s[LONGSTEP_INNER_], pulled[LONGSTEP_INNER_], rest[LONGSTEP_FREE_], stamp;
} longstep_state;

#if FINISH
typedef struct {
    longstep_real K[LONGSTEP_SLOTS_][LONGSTEP_SLOTS_];
    longstep_real y[LONGSTEP_SLOTS_], target[LONGSTEP_SLOTS_], h[LONGSTEP_SLOTS_], w[LONGSTEP_SLOTS_];
    longstep_real panel[2][4][LONGSTEP_SLOTS_];
    longstep_real g[LONGSTEP_INNER_], s[LONGSTEP_INNER_], noise[LONGSTEP_INNER_];
    longstep_real v[LONGSTEP_FREE_], center[LONGSTEP_FREE_];
    longstep_state kept;
    longstep_residuals judged;
    int32_t row[LONGSTEP_SLOTS_], side[LONGSTEP_SLOTS_];
    int32_t count, changes, next, exact;
} longstep_finish_space;
#endif

/* All memory that a solve needs. It holds nothing between solves: any number of them may be used at once. */
typedef struct {
    longstep_real q[LONGSTEP_UNKNOWNS_], l[LONGSTEP_ROWS_], u[LONGSTEP_ROWS_];
    longstep_real still[LONGSTEP_UNKNOWNS_], cost[LONGSTEP_FREE_], level[LONGSTEP_INNER_];
    longstep_state state;
    union {
        longstep_state anchor;
        struct {
            longstep_real v[LONGSTEP_FREE_], y[LONGSTEP_INNER_];
            longstep_real ray_x[LONGSTEP_UNKNOWNS_], ray_y[LONGSTEP_ROWS_];
        } previous;
    } past;
    struct {
        longstep_real v[LONGSTEP_FREE_], z[LONGSTEP_INNER_], y[LONGSTEP_INNER_];
        longstep_real w[LONGSTEP_UNKNOWNS_], dual[LONGSTEP_ROWS_];
    } best;
    longstep_real rows[LONGSTEP_INNER_], more_rows[LONGSTEP_INNER_];
    longstep_real columns[LONGSTEP_FREE_], more_columns[LONGSTEP_FREE_];
    longstep_real w[LONGSTEP_UNKNOWNS_], slope[LONGSTEP_UNKNOWNS_], Aty[LONGSTEP_UNKNOWNS_];
    longstep_real dual[LONGSTEP_ROWS_], value[LONGSTEP_ROWS_];
    longstep_real spare[3][LONGSTEP_SPARE_];
    longstep_residuals residuals, anchored;
    longstep_real merit, best_violation, objective, shift, primal_residual, dual_residual;
    longstep_real size_b, size_w, size_slope, still_quadratic, still_linear, stamp;
    int32_t k, first, iterations, status, suspect, safe, failures, fresh, outside, owed;
#if LADDER
    int32_t place, moves;
    longstep_real fallen, mark;
    longstep_real split[3];
#endif
#if PREDICTED
    longstep_real near[LONGSTEP_PARAMETERS];
#endif
#if FINISH
    longstep_finish_space finish;
#endif
} longstep_workspace;
