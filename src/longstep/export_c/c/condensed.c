/* ADMM on the inequalities alone, on equilibrated data. Points are w = still + B v, on which the equalities hold for every
 * v; inequalities have the values s = level + A v, of which the first are coordinates themselves. With K = P + A' rho A,
 * P that of the coordinates,
 *
 *     K dv = -(Pv + cost + A'(y + rho (s - z))),  s+ = s + A dv
 *     r  = z + alpha (s+ - z) + y/rho
 *     z+ = clip(r, l, u),  y+ = rho (r - z+)
 *
 * Pv + cost is kept as rest - A' pulled. After a step it is -A'(y + rho (s+ - z)), by the system that dv solves: then
 * rest is zero, and P needs no product. A check computes w, all multipliers and what is kept anew. */

#if METRIC
#define PENALTY(i) (rho[k] * penalties[i])
#else
#define PENALTY(i) rho[k]
#endif

#if REFINEMENTS
/* out = (P + delta I + A' rho A) x */
static void multiply_K(longstep_workspace *work, int32_t k, const real *restrict x, real *restrict out)
{
    real *restrict Ax = work->more_rows, *restrict Px = work->spare[2];
#if METRIC
    const real *restrict penalties = metric_of(k);
#endif
    multiply_A(x, Ax);
    for (int32_t i = 0; i < INNER; ++i) Ax[i] *= PENALTY(i);
    multiply_At(Ax, out);
    multiply_reduced(x, Px);
    for (int32_t i = 0; i < N; ++i) out[i] += Px[i] + DELTA * x[i];
}
#endif

${refine}
static void forget(longstep_workspace *work)
{
    (void)work;
}

static void step(longstep_workspace *work, int32_t k)
{
    longstep_state *const state = &work->state;
    real *restrict z = state->z, *restrict y = state->y, *restrict s = state->s, *restrict pulled = state->pulled;
    real *restrict t = work->rows, *restrict Adv = work->more_rows, *restrict dv = work->columns;
    const real *restrict l = work->l + EQUALITIES, *restrict u = work->u + EQUALITIES;
#if METRIC
    const real *restrict penalties = metric_of(k);
#endif
    const real a = alpha[k];
    for (int32_t i = 0; i < INNER; ++i) {
        t[i] = y[i] + PENALTY(i) * (s[i] - z[i]);
        Adv[i] = pulled[i] - t[i];
    }
    multiply_At(Adv, dv);
    for (int32_t i = 0; i < N; ++i) dv[i] -= state->rest[i];
    solve_refined(work, k, dv);
    multiply_A(dv, Adv);
    for (int32_t i = 0; i < INNER; ++i) {
        const real r = z[i] + a * (s[i] - z[i] + Adv[i]) + y[i] / PENALTY(i);
        const real above = r < l[i] ? l[i] : r;
        z[i] = above > u[i] ? u[i] : above;
        y[i] = PENALTY(i) * (r - z[i]);
        s[i] += Adv[i];
#if BY_SYSTEM
        pulled[i] = t[i] + PENALTY(i) * Adv[i];
#endif
    }
    for (int32_t i = 0; i < N; ++i) state->v[i] += dv[i];
    state->stamp = 0;
#if BY_SYSTEM
    for (int32_t i = 0; i < N; ++i) state->rest[i] = 0;
#else
    multiply_reduced(dv, work->more_columns);
    for (int32_t i = 0; i < N; ++i) state->rest[i] += work->more_columns[i];
#endif
}

${bounds}
/* The equalities' multipliers that leave the least of a slope, into the first entries of `dual`, which hold zero. */
static void multipliers(longstep_workspace *work, const real *restrict slope)
{
    real *restrict dual = work->dual;
#if NORMAL
    real *restrict value = work->value;
    multiply_whole(slope, value);
    for (int32_t i = 0; i < EQUALITIES; ++i) dual[i] = -value[i];
    solve_normal(dual);
#if NORMAL_REFINEMENTS
    real *restrict left = work->Aty;
    for (int32_t i = EQUALITIES; i < ROWS; ++i) value[i] = 0;
    memcpy(value, dual, EQUALITIES * sizeof *dual);
    multiply_whole_t(value, left);
    for (int32_t i = 0; i < WHOLE; ++i) left[i] += slope[i];
    multiply_whole(left, value);
    solve_normal(value);
    for (int32_t i = 0; i < EQUALITIES; ++i) dual[i] -= value[i];
#endif
#else
    multiply_Yt(slope, dual);
    for (int32_t i = 0; i < EQUALITIES; ++i) dual[i] = -dual[i];
#endif
}

/* The point w and all multipliers `dual` of (v, y), and slope = Pw + q; of a difference where `affine` is zero. */
static void lift(longstep_workspace *work, const real *v, const real *y, real affine)
{
    real *restrict w = work->w, *restrict slope = work->slope, *restrict dual = work->dual, *restrict total = work->Aty;
    multiply_N(v, w);
    for (int32_t i = 0; i < WHOLE; ++i) w[i] += affine * work->still[i];
    multiply_P(w, slope);
    for (int32_t i = 0; i < WHOLE; ++i) slope[i] += affine * work->q[i];
    for (int32_t i = 0; i < EQUALITIES; ++i) dual[i] = 0;
    for (int32_t i = 0; i < INNER; ++i) dual[EQUALITIES + i] = y[i];
    /* A start may have multipliers along infinite bounds; a step leaves none. */
    if (affine > 0 && work->k == 0)
        for (int32_t i = EQUALITIES; i < ROWS; ++i) dual[i] = cut(dual[i], work->l[i], work->u[i]);
    multiply_whole_t(dual, total);
#if LADDER
    /* Of a difference nothing is asked. */
    if (affine > 0) {
        work->split[2] = 0;
        for (int32_t i = 0; i < WHOLE; ++i)
            work->split[2] = larger(work->split[2], magnitude(total[i]) * one_over_dc[i]);
    }
#endif
    for (int32_t i = 0; i < WHOLE; ++i) slope[i] += total[i];
    multipliers(work, slope);
    multiply_P(w, slope);
    for (int32_t i = 0; i < WHOLE; ++i) slope[i] += affine * work->q[i];
}

/* s and Pv + cost from the point, without what rounding has added on the way. */
static void refresh(longstep_workspace *work)
{
    longstep_state *const state = &work->state;
    for (int32_t i = 0; i < INNER; ++i) {
        state->s[i] = work->value[EQUALITIES + i];
        state->pulled[i] = 0;
    }
    multiply_reduced(state->v, state->rest);
    for (int32_t i = 0; i < N; ++i) state->rest[i] += work->cost[i];
}

/* Every step leaves z in [l, u] and y without parts along infinite bounds; a start need not. */
static void residuals(longstep_workspace *work, longstep_residuals *r)
{
    longstep_state *const state = &work->state;
    const real *restrict l = work->l, *restrict u = work->u, *restrict q = work->q, *restrict w = work->w;
    real *restrict slope = work->slope, *restrict Aty = work->Aty;
    real *restrict y = work->dual, *restrict value = work->value;
    real square = 0, support = 0, quadratic = 0, linear = 0, most = 0, scale = 0;
    int32_t bad = 0;
    lift(work, state->v, state->y, 1);
    /* By which `remember` knows whose w and multipliers are there. */
    state->stamp = ++work->stamp;
    multiply_whole(w, value);
    for (int32_t i = 0; i < ROWS; ++i) {
        const real z = i < EQUALITIES ? l[i] : clip(state->z[i - EQUALITIES], l[i], u[i]);
        const real residual = (value[i] - z) * one_over_e[i];
        most = larger(most, magnitude(residual));
        scale = larger(scale, larger(magnitude(value[i]), magnitude(z)) * one_over_e[i]);
        square += residual * residual;
        bad += wrong(residual);
        y[i] = cut(y[i], l[i], u[i]);
        support += support_of(y[i], l[i], u[i]);
    }
    r->primal = SQRT(square);
    r->primal_max = choose(bad, (real)INFINITY, most);
    r->primal_scale = scale;
#if LADDER
    work->split[0] = work->split[1] = 0;
    for (int32_t i = EQUALITIES; i < ROWS; ++i) {
        const real z = state->z[i - EQUALITIES];
        work->split[0] = larger(work->split[0], magnitude(value[i] - z) * one_over_e[i]);
        work->split[1] = larger(work->split[1], larger(magnitude(value[i]), magnitude(z)) * one_over_e[i]);
    }
#endif
    refresh(work);

    multiply_whole_t(y, Aty);
    square = 0;
    bad = 0;
    for (int32_t i = 0; i < WHOLE; ++i) {
        const real residual = (slope[i] + Aty[i]) * one_over_dc[i], Pw = slope[i] - q[i];
#if LADDER
        work->split[2] = larger(work->split[2], larger(magnitude(Pw), magnitude(q[i])) * one_over_dc[i]);
#endif
        slope[i] = larger(larger(magnitude(Pw), magnitude(Aty[i])), magnitude(q[i])) * one_over_dc[i];
        Aty[i] = magnitude(residual);
        square += residual * residual;
        bad += wrong(residual);
        quadratic += w[i] * Pw;
        linear += w[i] * q[i];
    }
    r->dual = SQRT(square);
    r->dual_max = choose(bad, (real)INFINITY, largest(Aty, WHOLE));
    r->dual_scale = largest(slope, WHOLE);
    quadratic *= ONE_OVER_C;
    linear *= ONE_OVER_C;
    support *= ONE_OVER_C;
    r->gap = magnitude(quadratic + linear + support);
    r->gap_scale = larger(larger(magnitude(quadratic), magnitude(linear)), magnitude(support));
    r->objective = (real)0.5 * quadratic + linear;
}

/* Whether what is known without the point says that the state is not solved: the inequalities' residuals; and the
 * gradient g in the coordinates, B' of the dual residual, whose largest entry is then at least that of |g| / g_size. The
 * dual residual's scale is at most that of Pw and of q, and itself. The gap is v'g + (support of y) - y's, where `still`
 * is normal to the columns of B; w'Pw is at most (sqrt(still'P still) + sqrt(v'Pv))^2. */
static int is_far(longstep_workspace *work, const longstep_settings *settings)
{
    const longstep_state *const state = &work->state;
    const real *restrict unit = one_over_e + EQUALITIES, *restrict l = work->l + EQUALITIES;
    const real *restrict u = work->u + EQUALITIES;
    real *restrict t = work->rows, *restrict g = work->columns;
    real most = 0, scale = work->size_b, dual = 0, size = 0, gap = 0, square = 0, slope = 0;
    int32_t bad = 0;
    for (int32_t i = 0; i < INNER; ++i) {
        const real z = clip(state->z[i], l[i], u[i]);
        most = larger(most, magnitude(state->s[i] - z) * unit[i]);
        scale = larger(scale, larger(magnitude(state->s[i]), magnitude(z)) * unit[i]);
        t[i] = state->y[i] - state->pulled[i];
        gap += support_of(cut(state->y[i], l[i], u[i]), l[i], u[i]) - state->y[i] * state->s[i];
        square -= (state->s[i] - work->level[i]) * state->pulled[i];
    }
    /* Counted apart: GCC 12 for 64-bit ARM breaks down on the two kinds of sum in one loop. */
    for (int32_t i = 0; i < INNER; ++i) bad += wrong(state->s[i]) + wrong(t[i]);
    for (int32_t i = 0; i < N; ++i) bad += wrong(state->v[i]);
    if (bad) return 0;
    if (most > (real)1.001 * (settings->eps_abs + settings->eps_rel * scale)) return 1;
    /* A start may have multipliers along infinite bounds. */
    if (work->k == 0) return 0;
    multiply_At(t, g);
    for (int32_t i = 0; i < N; ++i) {
        dual = larger(dual, magnitude(g[i] + state->rest[i]) * one_over_g_size[i]);
        size = larger(size, magnitude(state->v[i]));
        gap += state->v[i] * (g[i] + state->rest[i]);
        square += state->v[i] * (state->rest[i] - work->cost[i]);
        slope += state->v[i] * work->cost[i];
    }
    scale = work->size_slope + SLOPE_OF_V * size + dual;
    if (dual > (real)1.001 * (settings->eps_abs + settings->eps_rel * scale)) return 1;
#if APART || !LEAST
    /* There `still` need not satisfy the equalities, or is not normal to the columns of B. */
    (void)gap;
    (void)square;
    (void)slope;
    return 0;
#else
    const real twice = work->still_quadratic + 2 * (work->still_linear + slope) + square;
    const real cross = SQRT(larger(work->still_quadratic, 0)) + SQRT(larger(square, 0));
    gap = magnitude(gap) * ONE_OVER_C;
    scale = gap + (3 * cross * cross + magnitude(twice)) * ONE_OVER_C;
    return gap > (real)1.001 * (settings->eps_abs + settings->eps_rel * scale) + ROUNDING * scale;
#endif
}

/* Whether the last step may be a certificate: necessary conditions of `infeasible` below, in the coordinates alone, with
 * bounds for what they leave open. */
static int is_suspect(longstep_workspace *work, real eps)
{
#if APART
    (void)work;
    (void)eps;
    return 1;
#else
    const longstep_state *const state = &work->state;
    const real *restrict l = work->l + EQUALITIES, *restrict u = work->u + EQUALITIES;
    real *restrict dv = work->columns, *restrict pull = work->more_columns;
    real *restrict dy = work->rows, *restrict Adv = work->more_rows;
    real size_v = 0, size_y = 0, growth = 0, descent = 0, most = 0;
    for (int32_t i = 0; i < N; ++i) {
        dv[i] = state->v[i] - work->past.previous.v[i];
        size_v = larger(size_v, magnitude(dv[i]));
        descent += work->cost[i] * dv[i];
    }
    for (int32_t i = 0; i < INNER; ++i) {
        const real moved = state->y[i] - work->past.previous.y[i];
        size_y = larger(size_y, magnitude(moved));
        dy[i] = cut(moved, l[i], u[i]);
        growth += support_of(dy[i], l[i], u[i]) - work->level[i] * dy[i];
    }
    const real dual = (real)1.001 * eps * SIZE_A * (DUAL_OF_V * size_v + DUAL_OF_Y * size_y);
    if (growth <= work->size_w * dual) {
        multiply_At(dy, pull);
        for (int32_t i = 0; i < N; ++i) most = larger(most, magnitude(pull[i]));
        if (most <= FREE_OF_SLOPE * dual) return 1;
    }
    const real moved = (real)1.001 * eps * W_OF_V * size_v;
    if (descent > work->size_w * C_SCALE * SIZE_P * moved) return 0;
    multiply_A(dv, Adv);
    for (int32_t i = 0; i < INNER; ++i) {
        const real move = Adv[i] * one_over_e[EQUALITIES + i];
        if (move > SIZE_A * moved && u[i] < (real)INFINITY) return 0;
        if (move < -SIZE_A * moved && l[i] > -(real)INFINITY) return 0;
    }
    return 1;
#endif
}

static void keep_previous(longstep_workspace *work)
{
    memcpy(work->past.previous.v, work->state.v, sizeof work->state.v);
    memcpy(work->past.previous.y, work->state.y, sizeof work->state.y);
}

/* Whether `dual`, without parts along infinite bounds, is a direction along which the dual grows for ever. */
static int primal_infeasible(longstep_workspace *work, real eps)
{
    const real *restrict dy = work->dual;
    real *restrict Atdy = work->Aty;
    real size = 0, bounds_l = 0, bounds_u = 0, support = 0, most = 0;
    for (int32_t i = 0; i < ROWS; ++i) {
        const real l = work->l[i], u = work->u[i];
        size = larger(size, magnitude(dy[i]) * e_over_c[i]);
        bounds_l = larger(bounds_l, magnitude(finite(l)) * one_over_e[i]);
        bounds_u = larger(bounds_u, magnitude(finite(u)) * one_over_e[i]);
        support += support_of(dy[i], l, u);
    }
    size *= C_SCALE;
    const real bounds = larger(bounds_l, bounds_u);
    if (!(size > 0 && support < -eps * (bounds < 1 ? bounds : 1) * size)) return 0;
    multiply_whole_t(dy, Atdy);
    for (int32_t i = 0; i < WHOLE; ++i) most = larger(most, magnitude(Atdy[i]) * one_over_dc[i]);
    return most * C_SCALE < eps * SIZE_A * size;
}

/* Whether w is a direction along which the objective falls for ever. */
static int dual_infeasible(longstep_workspace *work, real eps)
{
    const real *restrict dw = work->w;
    real *restrict Pdw = work->slope, *restrict Adw = work->value;
    real size = 0, descent = 0, cost = 0, most = 0;
    for (int32_t i = 0; i < WHOLE; ++i) {
        size = larger(size, magnitude(dw[i]) * d_scale[i]);
        descent += work->q[i] * dw[i];
        cost = larger(cost, magnitude(work->q[i]) * one_over_dc[i]);
    }
    if (!(size > 0 && descent * ONE_OVER_C < -eps * cost * size)) return 0;
    multiply_P(dw, Pdw);
    for (int32_t i = 0; i < WHOLE; ++i) most = larger(most, magnitude(Pdw[i]) * one_over_dc[i]);
    if (!(most <= eps * SIZE_P * size)) return 0;
    const real level = eps * SIZE_A * size;
    multiply_whole(dw, Adw);
    for (int32_t i = 0; i < ROWS; ++i) {
        const real move = Adw[i] * one_over_e[i];
        if (move > level && work->u[i] < (real)INFINITY) return 0;
        if (move < -level && work->l[i] > -(real)INFINITY) return 0;
    }
    return 1;
}

/* Differences of successive iterates converge to certificates (Banjac, Goulart, Stellato, Boyd 2019). What is found stays
 * for longstep_ray. */
static int32_t infeasible(longstep_workspace *work, real eps)
{
    real *restrict dv = work->columns, *restrict dy = work->rows;
    int found = 0;
    if (!is_suspect(work, eps)) return 0;
    for (int32_t i = 0; i < N; ++i) dv[i] = work->state.v[i] - work->past.previous.v[i];
    for (int32_t i = 0; i < INNER; ++i) dy[i] = work->state.y[i] - work->past.previous.y[i];
    lift(work, dv, dy, 0);
    /* What is there now is of no state. */
    ++work->stamp;
#if APART
    /* What equalities that repeat each other leave of b is a certificate, unless it is zero. */
    real *restrict kept = work->past.previous.ray_y, *restrict dual = work->dual;
    memcpy(kept, dual, sizeof work->dual);
    multiply_apart(work->l, dual);
    for (int32_t i = 0; i < EQUALITIES; ++i) dual[i] = -dual[i];
    for (int32_t i = EQUALITIES; i < ROWS; ++i) dual[i] = 0;
    found = primal_infeasible(work, eps);
    if (!found) memcpy(dual, kept, sizeof work->dual);
#endif
    if (!found) {
        for (int32_t i = EQUALITIES; i < ROWS; ++i) work->dual[i] = cut(work->dual[i], work->l[i], work->u[i]);
        found = primal_infeasible(work, eps);
    }
    memcpy(work->past.previous.ray_x, work->w, sizeof work->w);
    memcpy(work->past.previous.ray_y, work->dual, sizeof work->dual);
    if (found) return LONGSTEP_PRIMAL_INFEASIBLE;
    return dual_infeasible(work, eps) ? LONGSTEP_DUAL_INFEASIBLE : 0;
}

static void remember(longstep_workspace *work)
{
    memcpy(work->best.v, work->state.v, sizeof work->best.v);
    memcpy(work->best.z, work->state.z, sizeof work->best.z);
    memcpy(work->best.y, work->state.y, sizeof work->best.y);
    /* Not so where the safeguard went back to a state that was judged before, or where rays were looked for. */
    if (work->state.stamp != work->stamp) lift(work, work->state.v, work->state.y, 1);
    memcpy(work->best.w, work->w, sizeof work->w);
    memcpy(work->best.dual, work->dual, sizeof work->dual);
    work->owed = 0;
}

/* The start as the best point, while nothing is known of its residuals. */
static void owe(longstep_workspace *work)
{
    memcpy(work->best.v, work->state.v, sizeof work->best.v);
    memcpy(work->best.z, work->state.z, sizeof work->best.z);
    memcpy(work->best.y, work->state.y, sizeof work->best.y);
    work->owed = 1;
}

/* The best point as the state, to be judged. */
static void recall(longstep_workspace *work)
{
    memcpy(work->state.v, work->best.v, sizeof work->best.v);
    memcpy(work->state.z, work->best.z, sizeof work->best.z);
    memcpy(work->state.y, work->best.y, sizeof work->best.y);
    work->fresh = 0;
}

static void extract_best(const longstep_workspace *work, longstep_result *r)
{
    for (int32_t i = 0; i < WHOLE; ++i) r->x[i] = work->best.w[i] * d_scale[i];
    for (int32_t i = 0; i < ROWS; ++i) {
        const real l = work->l[i], u = work->u[i];
        r->y[place_row[i]] = cut(work->best.dual[i], l, u) * e_over_c[i];
        r->s[place_row[i]] = (i < EQUALITIES ? l : clip(work->best.z[i - EQUALITIES], l, u)) * one_over_e[i];
    }
    free_rows(r);
}

static void extract_state(longstep_workspace *work, longstep_result *result)
{
    remember(work);
    extract_best(work, result);
}

void longstep_ray(const longstep_workspace *work, real *x, real *y)
{
    for (int32_t i = 0; i < LONGSTEP_CONSTRAINTS; ++i) y[i] = 0;
    for (int32_t i = 0; i < WHOLE; ++i) x[i] = work->past.previous.ray_x[i] * d_scale[i];
    for (int32_t i = 0; i < ROWS; ++i) y[place_row[i]] = work->past.previous.ray_y[i] * e_over_c[i];
}

#if PREDICTED
/* Values and multipliers of the inequalities that training's optima predict from the parameter, complementary. */
static void predict(longstep_workspace *work, const real *parameter)
{
    longstep_state *const state = &work->state;
    const real *restrict l = work->l + EQUALITIES, *restrict u = work->u + EQUALITIES;
    real *restrict guess = work->rows, *restrict near = work->near;
    for (int32_t i = 0; i < LONGSTEP_PARAMETERS; ++i) near[i] = clip(parameter[i], start_low[i], start_high[i]);
    multiply_start(near, guess);
    for (int32_t i = 0; i < INNER; ++i) {
        const real total = guess[i] + start_offset[i];
        state->z[i] = clip(total, l[i], u[i]);
        state->y[i] = start_rho[i] * (total - state->z[i]);
    }
}
#endif

static void start_from(longstep_workspace *work, const longstep_start *start)
{
    longstep_state *const state = &work->state;
    real *restrict w = work->w, *restrict value = work->value;
    memset(state, 0, sizeof *state);
    work->size_b = work->size_w = work->size_slope = work->stamp = 0;
    work->still_quadratic = work->still_linear = 0;
    work->owed = 0;
    for (int32_t i = 0; i < EQUALITIES; ++i) {
        work->size_b = larger(work->size_b, magnitude(work->l[i]) * one_over_e[i]);
    }
    multiply_P(work->still, work->slope);
    for (int32_t i = 0; i < WHOLE; ++i) {
        const real size = (magnitude(work->slope[i]) + magnitude(work->q[i])) * one_over_dc[i];
        work->size_slope = larger(work->size_slope, size);
        work->size_w += magnitude(work->still[i]) * d_scale[i];
        work->still_quadratic += work->still[i] * work->slope[i];
        work->still_linear += work->still[i] * work->q[i];
    }
    memcpy(state->s, work->level, sizeof state->s);
    memcpy(state->rest, work->cost, sizeof state->rest);
#if LEAST
    if (start == NULL) return;
#endif
    for (int32_t i = 0; i < WHOLE; ++i) w[i] = start == NULL ? 0 : start->x[i] / d_scale[i];
    multiply_whole(w, value);
    for (int32_t i = 0; i < INNER && start != NULL; ++i) {
        const int32_t row = EQUALITIES + i;
        state->y[i] = start->y == NULL ? 0 : start->y[place_row[row]] / e_over_c[row];
        state->z[i] = start->s == NULL ? value[row] : start->s[place_row[row]] / one_over_e[row];
    }
    /* The coordinates of the point nearest to w on which the equalities hold. */
#if ROWS_ARE_COORDINATES || !LEAST
    for (int again = 0; again <= NORMAL_REFINEMENTS; ++again) {
        for (int32_t i = 0; i < ROWS; ++i) value[i] = i < EQUALITIES ? value[i] - work->l[i] : 0;
        solve_normal(value);
        multiply_whole_t(value, work->Aty);
        for (int32_t i = 0; i < WHOLE; ++i) w[i] -= work->Aty[i];
        multiply_whole(w, value);
    }
#endif
#if ROWS_ARE_COORDINATES
    for (int32_t i = 0; i < N; ++i) state->v[i] = value[EQUALITIES + i] - work->level[i];
#else
    for (int32_t i = 0; i < WHOLE; ++i) w[i] -= work->still[i];
    multiply_back(w, state->v);
#endif
    multiply_A(state->v, state->s);
    for (int32_t i = 0; i < INNER; ++i) state->s[i] += work->level[i];
    multiply_reduced(state->v, state->rest);
    for (int32_t i = 0; i < N; ++i) state->rest[i] += work->cost[i];
}
