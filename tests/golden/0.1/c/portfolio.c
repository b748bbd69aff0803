#include "portfolio.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "portfolio_data.h"

/* The iteration of OSQP (Stellato, Banjac, Goulart, Bemporad, Boyd 2020) on equilibrated data, unknowns in the order of
 * elimination, rows with equalities first. As a correction, which vanishes at the optimum,
 *
 *     (P + sigma I + A' rho A) dw = -(Pw + q + A'(y + rho (Aw - z)))
 *     v  = z + alpha (A(w + dw) - z) + y/rho
 *     z+ = clip(v, l, u),  y+ = rho (v - z+),  w+ = w + alpha dw
 *
 * The state has Aw and slope = Pw + q too, moved along with w and computed anew at every check. */

#if REFINEMENTS
/* out = (P + sigma I + A' rho A) x, and what free rows add */
static void multiply_K(portfolio_workspace *work, int32_t k, const real *restrict x, real *restrict out)
{
    real *restrict Ax = work->more_rows, *restrict Px = work->spare[2];
    multiply_A(x, Ax);
    for (int32_t i = 0; i < ROWS; ++i) Ax[i] *= i < EQUALITIES ? rho_eq[k] : rho_ineq[k];
    multiply_At(Ax, out);
    multiply_P(x, Px);
    for (int32_t i = 0; i < N; ++i) out[i] += Px[i] + sigma[k] * x[i];
    multiply_fixed(x, Px);
    for (int32_t i = 0; i < N; ++i) out[i] += Px[i];
}
#endif

/* The solution of the linear system of step k, refined: x += K^-1 (rhs - Kx). */
static void solve_refined(portfolio_workspace *work, int32_t k, real *restrict x)
{
    const real *const factor = factors + (size_t)which[k] * FACTOR_SIZE;
#if REFINEMENTS
    real *restrict rhs = work->spare[0], *restrict left = work->spare[1];
    memcpy(rhs, x, sizeof work->spare[0]);
    solve(factor, x);
    for (int i = 0; i < REFINEMENTS; ++i) {
        multiply_K(work, k, x, left);
        for (int32_t j = 0; j < N; ++j) left[j] = rhs[j] - left[j];
        solve(factor, left);
        for (int32_t j = 0; j < N; ++j) x[j] += left[j];
    }
#else
    (void)work;
    solve(factor, x);
#endif
}

static void pull(const portfolio_state *s, real rho, int32_t from, int32_t to, real *restrict t)
{
    for (int32_t i = from; i < to; ++i) t[i] = s->y[i] + rho * (s->Aw[i] - s->z[i]);
}

static void project(portfolio_workspace *work, real alpha, real rho, int32_t from, int32_t to)
{
    const real *restrict l = work->l, *restrict u = work->u, *restrict Adw = work->more_rows;
    real *restrict z = work->state.z, *restrict y = work->state.y, *restrict Aw = work->state.Aw;
    const real inverse = 1 / rho;
    for (int32_t i = from; i < to; ++i) {
        const real v = z[i] + alpha * (Aw[i] - z[i] + Adw[i]) + y[i] * inverse;
        const real above = v < l[i] ? l[i] : v;
        z[i] = above > u[i] ? u[i] : above;
        y[i] = rho * (v - z[i]);
        Aw[i] += alpha * Adw[i];
    }
}

#if P_BY_SYSTEM
/* P dw out of the system that dw solves, where P has more entries than A: rhs - sigma dw - A' rho A dw. Errors of the slope
 * shrink by 1 - alpha in every step. */
static void move_slope(portfolio_workspace *work, int32_t k)
{
    const real *restrict Adw = work->more_rows, *restrict dw = work->columns, *restrict rhs = work->spare[0];
    real *restrict t = work->rows, *restrict Pdw = work->more_columns, *restrict fixed = work->spare[1];
    for (int32_t i = 0; i < EQUALITIES; ++i) t[i] = rho_eq[k] * Adw[i];
    for (int32_t i = EQUALITIES; i < ROWS; ++i) t[i] = rho_ineq[k] * Adw[i];
    multiply_At(t, Pdw);
    multiply_fixed(dw, fixed);
    for (int32_t i = 0; i < N; ++i) Pdw[i] = rhs[i] - sigma[k] * dw[i] - Pdw[i] - fixed[i];
}
#endif

static void step(portfolio_workspace *work, int32_t k)
{
    portfolio_state *const s = &work->state;
    real *restrict t = work->rows, *restrict Adw = work->more_rows;
    real *restrict dw = work->columns, *restrict Pdw = work->more_columns;
    const real a = alpha[k];
    pull(s, rho_eq[k], 0, EQUALITIES, t);
    pull(s, rho_ineq[k], EQUALITIES, ROWS, t);
    multiply_At(t, dw);
    for (int32_t i = 0; i < N; ++i) dw[i] = -(s->slope[i] + dw[i]);
#if P_BY_SYSTEM
    memcpy(work->spare[0], dw, sizeof work->spare[0]);
#endif
    solve_refined(work, k, dw);
    multiply_A(dw, Adw);
#if P_BY_SYSTEM
    move_slope(work, k);
#else
    multiply_P(dw, Pdw);
#endif
    project(work, a, rho_eq[k], 0, EQUALITIES);
    project(work, a, rho_ineq[k], EQUALITIES, ROWS);
    for (int32_t i = 0; i < N; ++i) s->w[i] += a * dw[i];
    for (int32_t i = 0; i < N; ++i) s->slope[i] += a * Pdw[i];
}

static real finite(real bound)
{
    return magnitude(bound) <= REAL_MAX ? bound : 0;
}

static real clip(real a, real low, real high)
{
    a = a < low ? low : a;
    return a > high ? high : a;
}

/* y without its part along infinite bounds. Here as elsewhere on the way of a step nothing branches on the data. */
static real cut(real y, real l, real u)
{
    const real low = l >= -REAL_MAX ? -REAL_MAX : 0, high = u <= REAL_MAX ? REAL_MAX : 0;
    return clip(y, low, high);
}

/* u'y+ + l'y-, the support function of [l, u]; y has no part along infinite bounds. */
static real support_of(real y, real l, real u)
{
    return larger(y, 0) * finite(u) - larger(-y, 0) * finite(l);
}

/* Aw and Pw + q from w, without what rounding has added on the way. */
static void refresh(portfolio_workspace *work)
{
    portfolio_state *const s = &work->state;
    multiply_A(s->w, s->Aw);
    multiply_P(s->w, s->slope);
    for (int32_t i = 0; i < N; ++i) s->slope[i] += work->q[i];
}

/* Every step leaves z in [l, u] and y without parts along infinite bounds; a start need not. */
static void residuals(portfolio_workspace *work, portfolio_residuals *r)
{
    const portfolio_state *const s = &work->state;
    const real *restrict l = work->l, *restrict u = work->u, *restrict q = work->q;
    real *restrict y = work->rows, *restrict gap = work->more_rows;
    real *restrict Aty = work->columns, *restrict slope = work->more_columns;
    real square = 0, support = 0, quadratic = 0, linear = 0;
    int32_t bad = 0;
    refresh(work);
    for (int32_t i = 0; i < ROWS; ++i) {
        const real residual = (s->Aw[i] - clip(s->z[i], l[i], u[i])) * one_over_e[i];
        gap[i] = magnitude(residual);
        square += residual * residual;
        bad += wrong(residual);
    }
    for (int32_t i = 0; i < ROWS; ++i) {
        y[i] = cut(s->y[i], l[i], u[i]);
        support += support_of(y[i], l[i], u[i]);
    }
    r->primal = SQRT(square);
    r->primal_max = bad ? (real)INFINITY : largest(gap, ROWS);
    for (int32_t i = 0; i < ROWS; ++i)
        gap[i] = larger(magnitude(s->Aw[i]), magnitude(clip(s->z[i], l[i], u[i]))) * one_over_e[i];
    r->primal_scale = largest(gap, ROWS);

    multiply_At(y, Aty);
    square = 0;
    bad = 0;
    for (int32_t i = 0; i < N; ++i) {
        const real residual = (s->slope[i] + Aty[i]) * one_over_dc[i];
        slope[i] = magnitude(residual);
        square += residual * residual;
        bad += wrong(residual);
        quadratic += s->w[i] * (s->slope[i] - q[i]);
        linear += s->w[i] * q[i];
    }
    r->dual = SQRT(square);
    r->dual_max = bad ? (real)INFINITY : largest(slope, N);
    for (int32_t i = 0; i < N; ++i) {
        const real Pw = magnitude(s->slope[i] - q[i]);
        slope[i] = larger(larger(Pw, magnitude(Aty[i])), magnitude(q[i])) * one_over_dc[i];
    }
    r->dual_scale = largest(slope, N);
    quadratic *= ONE_OVER_C;
    linear *= ONE_OVER_C;
    support *= ONE_OVER_C;
    r->gap = magnitude(quadratic + linear + support);
    r->gap_scale = larger(larger(magnitude(quadratic), magnitude(linear)), magnitude(support));
    r->objective = (real)0.5 * quadratic + linear;
}

static void keep_previous(portfolio_workspace *work)
{
    memcpy(work->past.previous.w, work->state.w, sizeof work->state.w);
    memcpy(work->past.previous.y, work->state.y, sizeof work->state.y);
}

/* A direction dy along which the dual grows for ever. */
static int primal_infeasible(portfolio_workspace *work, real eps)
{
    real *restrict dy = work->rows, *restrict Atdy = work->columns;
    real size = 0, bounds_l = 0, bounds_u = 0, support = 0, most = 0;
    for (int32_t i = 0; i < ROWS; ++i) {
        const real l = work->l[i], u = work->u[i];
        dy[i] = cut(work->state.y[i] - work->past.previous.y[i], l, u);
        size = larger(size, magnitude(dy[i]) * e_over_c[i]);
        bounds_l = larger(bounds_l, magnitude(finite(l)) * one_over_e[i]);
        bounds_u = larger(bounds_u, magnitude(finite(u)) * one_over_e[i]);
        support += support_of(dy[i], l, u);
    }
    size *= C_SCALE;
    const real bounds = larger(bounds_l, bounds_u);
    if (!(size > 0 && support < -eps * (bounds < 1 ? bounds : 1) * size)) return 0;
    multiply_At(dy, Atdy);
    for (int32_t i = 0; i < N; ++i) most = larger(most, magnitude(Atdy[i]) * one_over_dc[i]);
    return most * C_SCALE < eps * SIZE_A * size;
}

/* A direction dw along which the objective falls for ever. */
static int dual_infeasible(portfolio_workspace *work, real eps)
{
    real *restrict dw = work->columns, *restrict Pdw = work->more_columns, *restrict Adw = work->more_rows;
    real size = 0, descent = 0, cost = 0, most = 0;
    for (int32_t i = 0; i < N; ++i) {
        dw[i] = work->state.w[i] - work->past.previous.w[i];
        size = larger(size, magnitude(dw[i]) * d_scale[i]);
        descent += work->q[i] * dw[i];
        cost = larger(cost, magnitude(work->q[i]) * one_over_dc[i]);
    }
    if (!(size > 0 && descent * ONE_OVER_C < -eps * cost * size)) return 0;
    multiply_P(dw, Pdw);
    for (int32_t i = 0; i < N; ++i) most = larger(most, magnitude(Pdw[i]) * one_over_dc[i]);
    if (!(most <= eps * SIZE_P * size)) return 0;
    const real level = eps * SIZE_A * size;
    multiply_A(dw, Adw);
    for (int32_t i = 0; i < ROWS; ++i) {
        const real move = Adw[i] * one_over_e[i];
        if (move > level && work->u[i] < (real)INFINITY) return 0;
        if (move < -level && work->l[i] > -(real)INFINITY) return 0;
    }
    return 1;
}

/* Differences of successive iterates converge to certificates (Banjac, Goulart, Stellato, Boyd 2019). */
static int32_t infeasible(portfolio_workspace *work, real eps)
{
    if (primal_infeasible(work, eps)) return PORTFOLIO_PRIMAL_INFEASIBLE;
    return dual_infeasible(work, eps) ? PORTFOLIO_DUAL_INFEASIBLE : 0;
}

static void remember(portfolio_workspace *work)
{
    memcpy(work->best.w, work->state.w, sizeof work->best.w);
    memcpy(work->best.z, work->state.z, sizeof work->best.z);
    memcpy(work->best.y, work->state.y, sizeof work->best.y);
}

static void extract(const portfolio_workspace *work, const real *w, const real *z, const real *y, portfolio_result *r)
{
    for (int32_t i = 0; i < N; ++i) r->x[place_x[i]] = w[i] * d_scale[i];
    for (int32_t i = 0; i < ROWS; ++i) {
        const real l = work->l[i], u = work->u[i];
        r->y[place_row[i]] = cut(y[i], l, u) * e_over_c[i];
        r->s[place_row[i]] = clip(z[i], l, u) * one_over_e[i];
    }
    free_rows(r);
}

static void extract_best(const portfolio_workspace *work, portfolio_result *result)
{
    extract(work, work->best.w, work->best.z, work->best.y, result);
}

static void extract_state(const portfolio_workspace *work, portfolio_result *result)
{
    extract(work, work->state.w, work->state.z, work->state.y, result);
}

void portfolio_ray(const portfolio_workspace *work, real *x, real *y)
{
    for (int32_t i = 0; i < PORTFOLIO_CONSTRAINTS; ++i) y[i] = 0;
    for (int32_t i = 0; i < N; ++i) x[place_x[i]] = (work->state.w[i] - work->past.previous.w[i]) * d_scale[i];
    for (int32_t i = 0; i < ROWS; ++i) {
        const real dy = work->state.y[i] - work->past.previous.y[i];
        y[place_row[i]] = cut(dy, work->l[i], work->u[i]) * e_over_c[i];
    }
}

static void start_from(portfolio_workspace *work, const portfolio_start *start)
{
    portfolio_state *const s = &work->state;
    memset(s, 0, sizeof *s);
    memcpy(s->slope, work->q, sizeof s->slope);
    if (start == NULL) return;
    for (int32_t i = 0; i < N; ++i) s->w[i] = start->x[place_x[i]] / d_scale[i];
    refresh(work);
    for (int32_t i = 0; i < ROWS; ++i) {
        s->y[i] = start->y == NULL ? 0 : start->y[place_row[i]] / e_over_c[i];
        s->z[i] = start->s == NULL ? s->Aw[i] : start->s[place_row[i]] / one_over_e[i];
    }
}

/* The loop: steps, checks, the safeguard, and what is reported. The algorithm is above. */

/* The largest residual in units of its tolerance: solved means <= 1; infinite where one is NaN or infinite. */
static real violation(const portfolio_residuals *r, const portfolio_settings *settings)
{
    const real value[3] = {r->primal_max, r->dual_max, r->gap};
    const real scale[3] = {r->primal_scale, r->dual_scale, r->gap_scale};
    real worst = 0;
    int32_t bad = 0;
    for (int i = 0; i < 3; ++i) {
        const real ratio = value[i] / larger(settings->eps_abs + settings->eps_rel * scale[i], (real)1e-30);
        bad += wrong(value[i]);
        worst = larger(worst, ratio > REAL_MAX ? REAL_MAX : ratio);
    }
    return bad ? (real)INFINITY : worst;
}

/* The residuals of the state; known already where the safeguard has just looked at it. */
static const portfolio_residuals *judged(portfolio_workspace *work)
{
    if (!work->fresh) {
        residuals(work, &work->residuals);
        work->fresh = 1;
    }
    return &work->residuals;
}

#if SAFEGUARD
/* What the safeguard wants to see fall. */
static real merit(const portfolio_residuals *r)
{
    const real worst = larger(r->primal, r->dual);
    return r->primal != r->primal ? r->primal : worst;
}

static void watch(portfolio_workspace *work)
{
    work->anchored = *judged(work);
    work->merit = merit(&work->anchored);
    memcpy(&work->past.anchor, &work->state, sizeof work->state);
}

/* Where the merit did not fall the state goes back to the anchor, and takes safe steps: over the next block, or from then
 * on where it failed often enough. Copies go one way or the other, so that the work is the same. */
static void settle(portfolio_workspace *work)
{
    const portfolio_residuals *r = judged(work);
    const real now = merit(r), scale = r->primal_scale > r->dual_scale ? r->primal_scale : r->dual_scale;
    /* Written so that NaN fails. */
    const int failed = !(now <= GROWTH * work->merit + ROOT_EPSILON * (1 + scale)) & !work->safe;
    portfolio_state *const states[2] = {&work->past.anchor, &work->state};
    portfolio_residuals *const judgements[2] = {&work->anchored, &work->residuals};
    const real merits[2] = {now, work->merit};
    memcpy(states[failed], states[!failed], sizeof work->state);
    memcpy(judgements[failed], judgements[!failed], sizeof work->residuals);
    work->merit = merits[failed];
    work->failures += failed;
    work->safe = failed | (work->failures >= FAILURES);
}
#endif

/* Step k of the step-varying phase, guarded. */
static void vary(portfolio_workspace *work, int32_t k)
{
#if SAFEGUARD == 2
    work->anchored = *judged(work);
    memcpy(&work->past.anchor, &work->state, sizeof work->state);
#endif
    step(work, work->safe ? HORIZON : k);
    work->fresh = 0;
#if SAFEGUARD == 2
    settle(work);
#elif SAFEGUARD == 1
    if (ends[k]) settle(work);
#else
    (void)k;
#endif
}

static void stay(portfolio_workspace *work)
{
    step(work, HORIZON);
    work->fresh = 0;
}

static void keep_best(portfolio_workspace *work)
{
    remember(work);
    work->objective = work->residuals.objective;
    work->primal_residual = work->residuals.primal_max;
    work->dual_residual = work->residuals.dual_max;
}

/* Judge the state at iteration k. */
static void check(portfolio_workspace *work, const portfolio_settings *settings, int steady)
{
    const portfolio_residuals *r = judged(work);
    const real v = violation(r, settings);
    const int failed = !(v <= REAL_MAX) && (steady || !SAFEGUARD);
    int32_t status = failed ? PORTFOLIO_NUMERICAL_FAILURE : PORTFOLIO_RUNNING, suspect = 0;
    if (steady && !(v <= 1)) {
        /* While the hyperparameters vary, differences of iterates say nothing about rays. */
        suspect = infeasible(work, settings->eps_infeasible);
        if (suspect == work->suspect && !failed && suspect) status = suspect;
    }
    if (v <= 1) status = PORTFOLIO_SOLVED;
    if (v < work->best_violation) {
        work->best_violation = v;
        keep_best(work);
    }
    work->suspect = suspect;
    work->status = status;
    work->iterations = work->k;
}

/* Blocks of steps, a check after each, in one phase of the schedule. */
static void phase(portfolio_workspace *work, const portfolio_settings *settings, int32_t end, int steady)
{
    while (work->k < end && work->status == PORTFOLIO_RUNNING) {
        const int32_t left = end - work->k;
        const int32_t last = work->k + (settings->check_every < left ? settings->check_every : left) - 1;
        while (work->k < last) {
            if (steady) stay(work);
            else vary(work, work->first + work->k);
            ++work->k;
        }
        if (steady) {
            keep_previous(work);
            stay(work);
        } else {
            vary(work, work->first + work->k);
        }
        ++work->k;
        check(work, settings, steady);
    }
}

/* The instance, the start, and nothing judged yet. */
static portfolio_status prepare(portfolio_workspace *work, const portfolio_settings *settings, const real *parameter,
                            const portfolio_start *start)
{
    work->k = work->iterations = work->suspect = work->safe = work->failures = work->fresh = 0;
    work->status = PORTFOLIO_BAD_INPUT;
    work->first = start != NULL && !PORTFOLIO_WARM ? HORIZON : 0;
    if (settings->check_every < 1 || settings->max_iter < 0 || settings->steps < -1 || !(settings->eps_abs >= 0) ||
        !(settings->eps_rel >= 0) || !(settings->eps_infeasible >= 0)) {
        return PORTFOLIO_BAD_INPUT;
    }
    if (settings->steps < 0 && settings->eps_abs < PORTFOLIO_LEAST_EPS && settings->eps_rel < PORTFOLIO_LEAST_EPS) {
        work->status = PORTFOLIO_BAD_TOLERANCE;
        return PORTFOLIO_BAD_TOLERANCE;
    }
    if (!load(work, parameter)) return PORTFOLIO_BAD_INPUT;
    start_from(work, start);
    work->status = PORTFOLIO_RUNNING;
    return PORTFOLIO_RUNNING;
}

portfolio_status portfolio_begin(portfolio_workspace *work, const portfolio_settings *settings, const real *parameter,
                               const portfolio_start *start)
{
    if (prepare(work, settings, parameter, start) != PORTFOLIO_RUNNING) return (portfolio_status)work->status;
#if SAFEGUARD
    watch(work);
#endif
    const real v = violation(judged(work), settings);
    work->best_violation = v <= REAL_MAX ? v : (real)INFINITY;
    keep_best(work);
    if (v <= 1) work->status = PORTFOLIO_SOLVED;
    return (portfolio_status)work->status;
}

portfolio_status portfolio_advance(portfolio_workspace *work, const portfolio_settings *settings, int32_t more)
{
    const int32_t left = settings->max_iter - work->k;
    const int32_t end = work->k + (more < left ? more : left);
    const int32_t varying = HORIZON - work->first;
    if (work->status == PORTFOLIO_RUNNING) phase(work, settings, varying < end ? varying : end, 0);
    if (work->status == PORTFOLIO_RUNNING) phase(work, settings, end, 1);
    return (portfolio_status)work->status;
}

static portfolio_status report(portfolio_workspace *work, portfolio_result *result)
{
    result->objective = work->objective;
    result->primal_residual = work->primal_residual;
    result->dual_residual = work->dual_residual;
    result->status = work->status;
    result->iterations = work->iterations;
    result->safeguarded = work->failures > 0;
    result->outside = work->outside;
    return (portfolio_status)work->status;
}

portfolio_status portfolio_finish(portfolio_workspace *work, const portfolio_settings *settings, portfolio_result *result)
{
    if (work->status >= PORTFOLIO_BAD_INPUT) {
        memset(result, 0, sizeof *result);
        result->status = work->status;
        return (portfolio_status)work->status;
    }
    if (work->status == PORTFOLIO_RUNNING) {
        work->status = work->k < settings->max_iter ? PORTFOLIO_TIME_LIMIT : PORTFOLIO_ITERATION_LIMIT;
    }
    extract_best(work, result);
    return report(work, result);
}

/* Exactly so many steps and no check on the way. */
static portfolio_status fixed(portfolio_workspace *work, const portfolio_settings *settings, portfolio_result *result)
{
    const int32_t count = settings->steps, most = HORIZON - work->first;
    const int32_t varying = most < count ? most : count;
#if SAFEGUARD
    if (varying) watch(work);
#endif
    for (int32_t k = 0; k < varying; ++k) vary(work, work->first + k);
#if SAFEGUARD == 1
    if (varying && count < most) settle(work);
#endif
    for (int32_t k = varying; k < count; ++k) stay(work);
    const real v = violation(judged(work), settings);
    work->status = PORTFOLIO_ITERATION_LIMIT;
    work->status += (PORTFOLIO_SOLVED - PORTFOLIO_ITERATION_LIMIT) * (v <= 1);
    work->status += (PORTFOLIO_NUMERICAL_FAILURE - PORTFOLIO_ITERATION_LIMIT) * !(v <= REAL_MAX);
    work->k = work->iterations = count;
    work->objective = work->residuals.objective;
    work->primal_residual = work->residuals.primal_max;
    work->dual_residual = work->residuals.dual_max;
    extract_state(work, result);
    return report(work, result);
}

portfolio_status portfolio_solve_from(portfolio_workspace *work, const portfolio_settings *settings, const real *parameter,
                                    const portfolio_start *start, portfolio_result *result)
{
    if (settings->steps >= 0) {
        if (prepare(work, settings, parameter, start) == PORTFOLIO_RUNNING) return fixed(work, settings, result);
        return portfolio_finish(work, settings, result);
    }
    portfolio_begin(work, settings, parameter, start);
    portfolio_advance(work, settings, settings->max_iter);
    return portfolio_finish(work, settings, result);
}

portfolio_status portfolio_solve(portfolio_workspace *work, const portfolio_settings *settings, const real *parameter,
                               portfolio_result *result)
{
    return portfolio_solve_from(work, settings, parameter, NULL, result);
}

void portfolio_defaults(portfolio_settings *settings)
{
    settings->eps_abs = settings->eps_rel = (real)1e-4;
    settings->eps_infeasible = EPS_INFEASIBLE;
    settings->max_iter = 10000;
    settings->check_every = 5;
    settings->steps = -1;
}

size_t portfolio_workspace_bytes(void)
{
    return sizeof(portfolio_workspace);
}

size_t portfolio_result_bytes(void)
{
    return sizeof(portfolio_result);
}
