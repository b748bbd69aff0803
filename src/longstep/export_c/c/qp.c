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
static void multiply_K(longstep_workspace *work, int32_t k, const real *restrict x, real *restrict out)
{
    real *restrict Ax = work->more_rows, *restrict Px = work->spare[2];
    multiply_A(x, Ax);
#if METRIC
    const real *restrict m = metric_of(k);
    for (int32_t i = 0; i < ROWS; ++i) Ax[i] *= m[i];
#endif
    for (int32_t i = 0; i < ROWS; ++i) Ax[i] *= i < EQUALITIES ? rho_eq[k] : rho_ineq[k];
    multiply_At(Ax, out);
    multiply_P(x, Px);
    for (int32_t i = 0; i < N; ++i) out[i] += Px[i] + sigma[k] * x[i];
    multiply_fixed(x, Px);
    for (int32_t i = 0; i < N; ++i) out[i] += Px[i];
}
#endif

${refine}
#if METRIC
/* Rows of one kind, whose penalties are rho times the metric m. */
static void pull(const longstep_state *s, real rho, const real *restrict m, int32_t from, int32_t to, real *restrict t)
{
    for (int32_t i = from; i < to; ++i) t[i] = s->y[i] + rho * m[i] * (s->Aw[i] - s->z[i]);
}

static void project(longstep_workspace *work, real alpha, real rho, const real *restrict m, int32_t from, int32_t to)
{
    const real *restrict l = work->l, *restrict u = work->u, *restrict Adw = work->more_rows;
    real *restrict z = work->state.z, *restrict y = work->state.y, *restrict Aw = work->state.Aw;
    for (int32_t i = from; i < to; ++i) {
        const real penalty = rho * m[i];
        const real v = z[i] + alpha * (Aw[i] - z[i] + Adw[i]) + y[i] / penalty;
        const real above = v < l[i] ? l[i] : v;
        z[i] = above > u[i] ? u[i] : above;
        y[i] = penalty * (v - z[i]);
        Aw[i] += alpha * Adw[i];
    }
}
#else
static void pull(const longstep_state *s, real rho, int32_t from, int32_t to, real *restrict t)
{
    for (int32_t i = from; i < to; ++i) t[i] = s->y[i] + rho * (s->Aw[i] - s->z[i]);
}

static void project(longstep_workspace *work, real alpha, real rho, int32_t from, int32_t to)
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
#endif

#if P_BY_SYSTEM
/* P dw out of the system that dw solves, where P has more entries than A: rhs - sigma dw - A' rho A dw. Errors of the slope
 * shrink by 1 - alpha in every step. */
static void move_slope(longstep_workspace *work, int32_t k)
{
    const real *restrict Adw = work->more_rows, *restrict dw = work->columns, *restrict rhs = work->spare[0];
    real *restrict t = work->rows, *restrict Pdw = work->more_columns, *restrict fixed = work->spare[1];
    for (int32_t i = 0; i < EQUALITIES; ++i) t[i] = rho_eq[k] * Adw[i];
    for (int32_t i = EQUALITIES; i < ROWS; ++i) t[i] = rho_ineq[k] * Adw[i];
#if METRIC
    const real *restrict m = metric_of(k);
    for (int32_t i = 0; i < ROWS; ++i) t[i] *= m[i];
#endif
    multiply_At(t, Pdw);
    multiply_fixed(dw, fixed);
    for (int32_t i = 0; i < N; ++i) Pdw[i] = rhs[i] - sigma[k] * dw[i] - Pdw[i] - fixed[i];
}
#endif

static void forget(longstep_workspace *work)
{
    (void)work;
}

static void step(longstep_workspace *work, int32_t k)
{
    longstep_state *const s = &work->state;
    real *restrict t = work->rows, *restrict Adw = work->more_rows;
    real *restrict dw = work->columns, *restrict Pdw = work->more_columns;
    const real a = alpha[k];
#if METRIC
    const real *const m = metric_of(k);
    pull(s, rho_eq[k], m, 0, EQUALITIES, t);
    pull(s, rho_ineq[k], m, EQUALITIES, ROWS, t);
#else
    pull(s, rho_eq[k], 0, EQUALITIES, t);
    pull(s, rho_ineq[k], EQUALITIES, ROWS, t);
#endif
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
#if METRIC
    project(work, a, rho_eq[k], m, 0, EQUALITIES);
    project(work, a, rho_ineq[k], m, EQUALITIES, ROWS);
#else
    project(work, a, rho_eq[k], 0, EQUALITIES);
    project(work, a, rho_ineq[k], EQUALITIES, ROWS);
#endif
    for (int32_t i = 0; i < N; ++i) s->w[i] += a * dw[i];
    for (int32_t i = 0; i < N; ++i) s->slope[i] += a * Pdw[i];
}

${bounds}
/* Aw and Pw + q from w, without what rounding has added on the way. */
static void refresh(longstep_workspace *work)
{
    longstep_state *const s = &work->state;
    multiply_A(s->w, s->Aw);
    multiply_P(s->w, s->slope);
    for (int32_t i = 0; i < N; ++i) s->slope[i] += work->q[i];
}

/* Every step leaves z in [l, u] and y without parts along infinite bounds; a start need not. */
static void residuals(longstep_workspace *work, longstep_residuals *r)
{
    const longstep_state *const s = &work->state;
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
    r->primal_max = choose(bad, (real)INFINITY, largest(gap, ROWS));
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
    r->dual_max = choose(bad, (real)INFINITY, largest(slope, N));
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

static void keep_previous(longstep_workspace *work)
{
    memcpy(work->past.previous.w, work->state.w, sizeof work->state.w);
    memcpy(work->past.previous.y, work->state.y, sizeof work->state.y);
}

/* A direction dy along which the dual grows for ever. */
static int primal_infeasible(longstep_workspace *work, real eps)
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
static int dual_infeasible(longstep_workspace *work, real eps)
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
static int32_t infeasible(longstep_workspace *work, real eps)
{
    if (primal_infeasible(work, eps)) return LONGSTEP_PRIMAL_INFEASIBLE;
    return dual_infeasible(work, eps) ? LONGSTEP_DUAL_INFEASIBLE : 0;
}

static void remember(longstep_workspace *work)
{
    memcpy(work->best.w, work->state.w, sizeof work->best.w);
    memcpy(work->best.z, work->state.z, sizeof work->best.z);
    memcpy(work->best.y, work->state.y, sizeof work->best.y);
}

static void extract(const longstep_workspace *work, const real *w, const real *z, const real *y, longstep_result *r)
{
    for (int32_t i = 0; i < N; ++i) r->x[place_x[i]] = w[i] * d_scale[i];
    for (int32_t i = 0; i < ROWS; ++i) {
        const real l = work->l[i], u = work->u[i];
        r->y[place_row[i]] = cut(y[i], l, u) * e_over_c[i];
        r->s[place_row[i]] = clip(z[i], l, u) * one_over_e[i];
    }
    free_rows(r);
}

static void extract_best(const longstep_workspace *work, longstep_result *result)
{
    extract(work, work->best.w, work->best.z, work->best.y, result);
}

static void extract_state(const longstep_workspace *work, longstep_result *result)
{
    extract(work, work->state.w, work->state.z, work->state.y, result);
}

void longstep_ray(const longstep_workspace *work, real *x, real *y)
{
    for (int32_t i = 0; i < LONGSTEP_CONSTRAINTS; ++i) y[i] = 0;
    for (int32_t i = 0; i < N; ++i) x[place_x[i]] = (work->state.w[i] - work->past.previous.w[i]) * d_scale[i];
    for (int32_t i = 0; i < ROWS; ++i) {
        const real dy = work->state.y[i] - work->past.previous.y[i];
        y[place_row[i]] = cut(dy, work->l[i], work->u[i]) * e_over_c[i];
    }
}

static void start_from(longstep_workspace *work, const longstep_start *start)
{
    longstep_state *const s = &work->state;
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
