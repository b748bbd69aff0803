/* What a solve gives. Vectors are in the order and the units of the user's problem. */
typedef struct {
    longstep_real x[LONGSTEP_UNKNOWNS];        /* the unknowns */
    longstep_real y[LONGSTEP_CONSTRAINTS_];    /* the multipliers of the constraints */
    longstep_real s[LONGSTEP_CONSTRAINTS_];    /* the value Ax of the constraints (QP) or their slack (cones) */
    longstep_real objective;                   /* the user's own, constants included */
    longstep_real primal_residual;             /* largest entries of the residuals */
    longstep_real dual_residual;
    int32_t status;                            /* a longstep_status */
    int32_t iterations;                        /* steps taken */
    int32_t safeguarded;                       /* 1 where learned steps failed and safe ones took over */
    int32_t outside;                           /* 1 where the parameter lies outside what training saw */
#if FINISH
    int32_t changes;                           /* of the set, or Newton steps, to the exact point; -1: it need not be */
#endif
} longstep_result;

/* The rest is for the solver itself. */
typedef struct {
    longstep_real primal, dual, primal_max, dual_max, gap, primal_scale, dual_scale, gap_scale, objective;
} longstep_residuals;
