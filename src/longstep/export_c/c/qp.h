
typedef struct {
    longstep_real w[LONGSTEP_UNKNOWNS_], z[LONGSTEP_ROWS_], y[LONGSTEP_ROWS_];
    longstep_real Aw[LONGSTEP_ROWS_], slope[LONGSTEP_UNKNOWNS_];
} longstep_state;

/* All memory that a solve needs. It holds nothing between solves: any number of them may be used at once. */
typedef struct {
    longstep_real q[LONGSTEP_UNKNOWNS_], l[LONGSTEP_ROWS_], u[LONGSTEP_ROWS_];
    longstep_state state;
    union {
        longstep_state anchor;
        struct {
            longstep_real w[LONGSTEP_UNKNOWNS_], y[LONGSTEP_ROWS_];
        } previous;
    } past;
    struct {
        longstep_real w[LONGSTEP_UNKNOWNS_], z[LONGSTEP_ROWS_], y[LONGSTEP_ROWS_];
    } best;
    longstep_real rows[LONGSTEP_ROWS_], more_rows[LONGSTEP_ROWS_];
    longstep_real columns[LONGSTEP_UNKNOWNS_], more_columns[LONGSTEP_UNKNOWNS_];
    longstep_real spare[3][LONGSTEP_SPARE_];
#if ROOM
    longstep_real room[LONGSTEP_ROOM_];
#endif
    longstep_residuals residuals, anchored;
    longstep_real merit, best_violation, objective, shift, primal_residual, dual_residual;
    int32_t k, first, iterations, status, suspect, safe, failures, fresh, outside;
#if LADDER
    int32_t place, moves;
    longstep_real fallen, mark;
#endif
} longstep_workspace;
