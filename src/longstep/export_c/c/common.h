/* How a solve ended. */
typedef enum {
    LONGSTEP_RUNNING = 0,            /* it has not: longstep_advance goes on */
    LONGSTEP_SOLVED = 1,             /* residuals and gap are within the tolerances */
    LONGSTEP_ITERATION_LIMIT = 2,    /* max_iter (or steps) came first; the best point checked (with steps the last) */
    LONGSTEP_TIME_LIMIT = 3,         /* the caller stopped before max_iter; the best point checked */
    LONGSTEP_PRIMAL_INFEASIBLE = 4,  /* no point satisfies the constraints: longstep_ray has the certificate */
    LONGSTEP_DUAL_INFEASIBLE = 5,    /* the objective is unbounded below: longstep_ray has the direction */
    LONGSTEP_NUMERICAL_FAILURE = 6,  /* the iterates stopped being finite; the best point checked */
    LONGSTEP_BAD_INPUT = 7,          /* a parameter is not finite, bounds cross, or a setting is out of range */
    LONGSTEP_BAD_TOLERANCE = 8       /* tolerances that this precision cannot reach: see LONGSTEP_LEAST_EPS */
} longstep_status;

/* When to stop. longstep_defaults fills it in. */
typedef struct {
    longstep_real eps_abs;         /* tolerances of residuals and gap, in the user's units: */
    longstep_real eps_rel;         /*   residual <= eps_abs + eps_rel * (its scale) */
    longstep_real eps_infeasible;  /* tolerance of certificates of infeasibility */
    int32_t max_iter;              /* at most so many steps */
    int32_t check_every;           /* steps between two checks */
    int32_t steps;                 /* -1, or exactly so many steps and no check on the way: the same work always */
} longstep_settings;

/* A point to start from, in the user's units. y and s may be NULL. */
typedef struct {
    const longstep_real *x;
    const longstep_real *y;
    const longstep_real *s;
} longstep_start;
