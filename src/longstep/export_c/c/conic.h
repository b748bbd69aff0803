
typedef struct {
    longstep_real x[LONGSTEP_UNKNOWNS_], y[LONGSTEP_ROWS_], s[LONGSTEP_ROWS_];
    longstep_real carry_x[LONGSTEP_UNKNOWNS_], carry_y[LONGSTEP_ROWS_];
    longstep_real tau, v_tau, carry_tau;
    int32_t first;
} longstep_state;

#if FINISH
typedef struct {
    longstep_real S[LONGSTEP_UNKNOWNS_][LONGSTEP_UNKNOWNS_];
    longstep_real panel[4][LONGSTEP_UNKNOWNS_], panel_weight[4];
    longstep_real x[LONGSTEP_UNKNOWNS_], last_x[LONGSTEP_UNKNOWNS_], best_x[LONGSTEP_UNKNOWNS_];
    longstep_real v[LONGSTEP_ROWS_], last_v[LONGSTEP_ROWS_], best_v[LONGSTEP_ROWS_], y[LONGSTEP_ROWS_];
    longstep_real F_x[LONGSTEP_UNKNOWNS_], F_v[LONGSTEP_ROWS_];
    longstep_real values[LONGSTEP_VALUES_], vectors[LONGSTEP_VECTORS_], bases[LONGSTEP_BASES_];
    longstep_state kept;
    longstep_residuals judged;
    int32_t waiting, changes, next, exact;
} longstep_finish_space;
#endif

/* All memory that a solve needs. It holds nothing between solves: any number of them may be used at once. */
typedef struct {
    longstep_real b[LONGSTEP_ROWS_], c[LONGSTEP_UNKNOWNS_];
    longstep_real g_x[LONGSTEP_UNKNOWNS_], g_y[LONGSTEP_ROWS_];
    longstep_real rows[LONGSTEP_ROWS_], more_rows[LONGSTEP_ROWS_];
    longstep_real columns[LONGSTEP_UNKNOWNS_], more_columns[LONGSTEP_UNKNOWNS_], other_columns[LONGSTEP_UNKNOWNS_];
    longstep_state state;
    union {
        longstep_state anchor;
    } past;
    struct {
        longstep_real x[LONGSTEP_UNKNOWNS_], y[LONGSTEP_ROWS_], s[LONGSTEP_ROWS_], tau;
    } best;
    longstep_real size, g_square;
    longstep_real matrix[LONGSTEP_MATRIX_], vectors[LONGSTEP_MATRIX_];
    longstep_real spare[3][LONGSTEP_SPARE_];
#if ROOM
    longstep_real room[LONGSTEP_ROOM_];
#endif
    longstep_residuals residuals, anchored;
    longstep_real merit, best_violation, objective, shift, primal_residual, dual_residual;
    int32_t g_of, k, first, iterations, status, suspect, safe, failures, fresh, outside;
#if LADDER
    int32_t place, moves;
    longstep_real fallen, mark;
#endif
#if FINISH
    longstep_finish_space finish;
#endif
} longstep_workspace;
