/*
 * Written by longstep from a learned solver of
 *
 *     minimise 1/2 x'Px + q'x  subject to  l <= Ax <= u
 *
 * The parameter is mapped to the data of an instance.
 * Nothing is allocated, nothing is global but constants: all memory is in the workspace and the result.
 * Everything is in the units of the user's problem. Not for -ffast-math: infinities have a meaning here.
 */
#ifndef PORTFOLIO_H
#define PORTFOLIO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef double portfolio_real;

#define PORTFOLIO_UNKNOWNS     14     /* entries of x */
#define PORTFOLIO_CONSTRAINTS  15     /* entries of y and s */
#define PORTFOLIO_PARAMETERS   6      /* entries of the parameter */
#define PORTFOLIO_HORIZON      10     /* steps with hyperparameters of their own; later ones take the steady state's */
#define PORTFOLIO_WARM         0      /* whether these are for warm starts too */
#define PORTFOLIO_LEAST_EPS  0.0    /* eps_abs and eps_rel that are both less are refused */
/* C has no arrays without entries; long ones are whole cache lines. */
#define PORTFOLIO_CONSTRAINTS_ 15
#define PORTFOLIO_UNKNOWNS_ 14
#define PORTFOLIO_ROWS_ 15
#define PORTFOLIO_SPARE_ 1
#define PORTFOLIO_MATRIX_ 1

/* Parameters, by name: where they begin in the parameter.
 * Arrays are stored by rows, symmetric matrices as upper triangles, diagonal and sparse ones as entries. */
#define PORTFOLIO_P_RETURNS 0 /* returns: 6 entries, shape (6,) */

/* Variables, by name: where they begin in x. */
#define PORTFOLIO_X_EXPOSURES 0 /* exposures: 2 entries, shape (2,) */
#define PORTFOLIO_X_WEIGHTS 8 /* weights: 6 entries, shape (6,) */

/* How a solve ended. */
typedef enum {
    PORTFOLIO_RUNNING = 0,            /* it has not: portfolio_advance goes on */
    PORTFOLIO_SOLVED = 1,             /* residuals and gap are within the tolerances */
    PORTFOLIO_ITERATION_LIMIT = 2,    /* max_iter (or steps) came first; the best point checked (with steps the last) */
    PORTFOLIO_TIME_LIMIT = 3,         /* the caller stopped before max_iter; the best point checked */
    PORTFOLIO_PRIMAL_INFEASIBLE = 4,  /* no point satisfies the constraints: portfolio_ray has the certificate */
    PORTFOLIO_DUAL_INFEASIBLE = 5,    /* the objective is unbounded below: portfolio_ray has the direction */
    PORTFOLIO_NUMERICAL_FAILURE = 6,  /* the iterates stopped being finite; the best point checked */
    PORTFOLIO_BAD_INPUT = 7,          /* a parameter is not finite, bounds cross, or a setting is out of range */
    PORTFOLIO_BAD_TOLERANCE = 8       /* tolerances that this precision cannot reach: see PORTFOLIO_LEAST_EPS */
} portfolio_status;

/* When to stop. portfolio_defaults fills it in. */
typedef struct {
    portfolio_real eps_abs;         /* tolerances of residuals and gap, in the user's units: */
    portfolio_real eps_rel;         /*   residual <= eps_abs + eps_rel * (its scale) */
    portfolio_real eps_infeasible;  /* tolerance of certificates of infeasibility */
    int32_t max_iter;              /* at most so many steps */
    int32_t check_every;           /* steps between two checks */
    int32_t steps;                 /* -1, or exactly so many steps and no check on the way: the same work always */
} portfolio_settings;

/* A point to start from, in the user's units. y and s may be NULL. */
typedef struct {
    const portfolio_real *x;
    const portfolio_real *y;
    const portfolio_real *s;
} portfolio_start;

/* What a solve gives. Vectors are in the order and the units of the user's problem. */
typedef struct {
    portfolio_real x[PORTFOLIO_UNKNOWNS];        /* the unknowns */
    portfolio_real y[PORTFOLIO_CONSTRAINTS_];    /* the multipliers of the constraints */
    portfolio_real s[PORTFOLIO_CONSTRAINTS_];    /* the value Ax of the constraints (QP) or their slack (cones) */
    portfolio_real objective;
    portfolio_real primal_residual;             /* largest entries of the residuals */
    portfolio_real dual_residual;
    int32_t status;                            /* a portfolio_status */
    int32_t iterations;                        /* steps taken */
    int32_t safeguarded;                       /* 1 where learned steps failed and safe ones took over */
    int32_t outside;                           /* 1 where the parameter lies outside what training saw */
} portfolio_result;

/* The rest is for the solver itself. */
typedef struct {
    portfolio_real primal, dual, primal_max, dual_max, gap, primal_scale, dual_scale, gap_scale, objective;
} portfolio_residuals;

typedef struct {
    portfolio_real w[PORTFOLIO_UNKNOWNS_], z[PORTFOLIO_ROWS_], y[PORTFOLIO_ROWS_];
    portfolio_real Aw[PORTFOLIO_ROWS_], slope[PORTFOLIO_UNKNOWNS_];
} portfolio_state;

/* All memory that a solve needs. It holds nothing between solves: any number of them may be used at once. */
typedef struct {
    portfolio_real q[PORTFOLIO_UNKNOWNS_], l[PORTFOLIO_ROWS_], u[PORTFOLIO_ROWS_];
    portfolio_state state;
    union {
        portfolio_state anchor;
        struct {
            portfolio_real w[PORTFOLIO_UNKNOWNS_], y[PORTFOLIO_ROWS_];
        } previous;
    } past;
    struct {
        portfolio_real w[PORTFOLIO_UNKNOWNS_], z[PORTFOLIO_ROWS_], y[PORTFOLIO_ROWS_];
    } best;
    portfolio_real rows[PORTFOLIO_ROWS_], more_rows[PORTFOLIO_ROWS_];
    portfolio_real columns[PORTFOLIO_UNKNOWNS_], more_columns[PORTFOLIO_UNKNOWNS_];
    portfolio_real spare[3][PORTFOLIO_SPARE_];
    portfolio_residuals residuals, anchored;
    portfolio_real merit, best_violation, objective, primal_residual, dual_residual;
    int32_t k, first, iterations, status, suspect, safe, failures, fresh, outside;
} portfolio_workspace;

/* The settings that the Python solver has by default. */
void portfolio_defaults(portfolio_settings *settings);

/* Solve one instance from a zero start. Returns the status, which is in the result too. */
portfolio_status portfolio_solve(portfolio_workspace *work, const portfolio_settings *settings,
                               const portfolio_real *parameter, portfolio_result *result);

/* The same from a warm start (NULL: from zero). It begins in the steady state, unless PORTFOLIO_WARM is 1. */
portfolio_status portfolio_solve_from(portfolio_workspace *work, const portfolio_settings *settings,
                                    const portfolio_real *parameter, const portfolio_start *start,
                                    portfolio_result *result);

/* The same in pieces, so that a caller can bound time:
 *
 *     portfolio_begin(work, settings, parameter, start);
 *     while (portfolio_advance(work, settings, more) == PORTFOLIO_RUNNING && there is time) {}
 *     portfolio_finish(work, settings, result);
 *
 * portfolio_advance takes at most `more` further steps, and returns PORTFOLIO_RUNNING also when max_iter is reached
 * (work->k tells). settings->steps is not looked at. */
portfolio_status portfolio_begin(portfolio_workspace *work, const portfolio_settings *settings,
                               const portfolio_real *parameter, const portfolio_start *start);
portfolio_status portfolio_advance(portfolio_workspace *work, const portfolio_settings *settings, int32_t more);
portfolio_status portfolio_finish(portfolio_workspace *work, const portfolio_settings *settings, portfolio_result *result);

/* After an infeasible status: the certificate x (PORTFOLIO_UNKNOWNS entries) of an unbounded objective or y
 * (PORTFOLIO_CONSTRAINTS entries) of constraints that no point satisfies. Both pointers must be valid. */
void portfolio_ray(const portfolio_workspace *work, portfolio_real *x, portfolio_real *y);

/* sizeof(portfolio_workspace) and sizeof(portfolio_result), for callers in other languages. */
size_t portfolio_workspace_bytes(void);
size_t portfolio_result_bytes(void);

#ifdef __cplusplus
}
#endif

#endif
