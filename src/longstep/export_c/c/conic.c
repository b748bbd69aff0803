/* The iteration of SCS (O'Donoghue 2021), Douglas-Rachford on the homogeneous embedding, on equilibrated data with the
 * unknowns in the order of elimination. With R = diag(r_w on x, r_y on y) and M = [P A'; -A 0],
 *
 *     p = (R + M)^-1 R mu,  g = (R + M)^-1 (c, b)
 *     tau~ = the positive root of (r_tau + g'Rg) t^2 + (mu'Rg - 2p'Rg - r_tau eta) t + p'R(p - mu)
 *     w~ = p - g tau~
 *     (x, y) = the projection of 2w~ - mu onto R^n x K*,  tau = max(2tau~ - eta, 0)
 *     s = r_y (y + mu_y - 2w~_y),  v_tau = r_tau (tau + eta - 2tau~)
 *     mu+ = (0, s)/R + 2w~ - (x, y) + alpha((x, y) - w~) with R of the next step, and eta+ likewise
 *
 * tau~ = 1 in the first step; later (mu, eta) is first brought to norm sqrt(n + m + 1). */

static real r_y(int32_t k, int32_t row)
{
#if METRIC
    return (row < ZERO ? r_yz[k] : r_ynz[k]) / metric_of(k)[row];
#else
    return row < ZERO ? r_yz[k] : r_ynz[k];
#endif
}

#if REFINEMENTS
/* out = (P + r_w I + A' diag(1/r_y) A) x */
static void multiply_K(longstep_workspace *work, int32_t k, const real *restrict x, real *restrict out)
{
    real *restrict Ax = work->more_rows, *restrict Px = work->spare[2];
    multiply_A(x, Ax);
    for (int32_t i = 0; i < ROWS; ++i) Ax[i] /= r_y(k, i);
    multiply_At(Ax, out);
    multiply_P(x, Px);
    for (int32_t i = 0; i < N; ++i) out[i] += Px[i] + r_w[k] * x[i];
}
#endif

${refine}
/* g and g'Rg, which depend on the factored hyperparameters alone. */
static void solve_for_g(longstep_workspace *work, int32_t k)
{
    real *restrict x = work->g_x, *restrict y = work->g_y, square = 0;
    if (work->g_of == which[k]) return;
    work->g_of = which[k];
    for (int32_t i = 0; i < ROWS; ++i) y[i] = work->b[i] / r_y(k, i);
    multiply_At(y, x);
    for (int32_t i = 0; i < N; ++i) x[i] = work->c[i] - x[i];
    solve_refined(work, k, x);
    multiply_A(x, y);
    for (int32_t i = 0; i < N; ++i) square += r_w[k] * x[i] * x[i];
    for (int32_t i = 0; i < ROWS; ++i) {
        y[i] = (work->b[i] + y[i]) / r_y(k, i);
        square += r_y(k, i) * y[i] * y[i];
    }
    work->g_square = square;
}

static void forget(longstep_workspace *work)
{
    work->g_of = -1;
}

/* The larger root of a t^2 + b t + c with a > 0 >= c, without cancellation. */
static real positive_root(real a, real b, real c)
{
    const real inside = b * b - 4 * a * c, root = SQRT(inside < REAL_MIN ? REAL_MIN : inside);
    return choose(b > 0, -2 * c / choose(b > 0, b + root, 1), (root - b) / (2 * a));
}

/* mu in place of carry, eta returned: rescaled, unless this is the first step. */
static real rescale(longstep_workspace *work, int32_t k)
{
    longstep_state *const s = &work->state;
    real square = 0, eta = s->v_tau / r_tau[k] + s->carry_tau;
#if METRIC
    for (int32_t i = 0; i < ROWS; ++i) s->carry_y[i] += s->s[i] / r_y(k, i);
#else
    for (int32_t i = 0; i < ZERO; ++i) s->carry_y[i] += s->s[i] / r_yz[k];
    for (int32_t i = ZERO; i < ROWS; ++i) s->carry_y[i] += s->s[i] / r_ynz[k];
#endif
    for (int32_t i = 0; i < N; ++i) square += s->carry_x[i] * s->carry_x[i];
    for (int32_t i = 0; i < ROWS; ++i) square += s->carry_y[i] * s->carry_y[i];
    const real norm = SQRT(square + eta * eta);
    const real scale = choose(s->first | (norm == 0), 1, ROOT_SIZE / choose(norm == 0, 1, norm));
    for (int32_t i = 0; i < N; ++i) s->carry_x[i] *= scale;
    for (int32_t i = 0; i < ROWS; ++i) s->carry_y[i] *= scale;
    return eta * scale;
}

static void step(longstep_workspace *work, int32_t k)
{
    longstep_state *const s = &work->state;
    real *restrict p_x = work->columns, *restrict p_y = work->rows;
    real *restrict mu_x = s->carry_x, *restrict mu_y = s->carry_y;
    const real *restrict g_x = work->g_x, *restrict g_y = work->g_y;
    const real a = alpha[k], eta = rescale(work, k);
    real gp = 0, pp = 0, gp_y = 0, pp_y = 0;
    solve_for_g(work, k);
    multiply_At(mu_y, p_x);
    for (int32_t i = 0; i < N; ++i) p_x[i] = r_w[k] * mu_x[i] - p_x[i];
    solve_refined(work, k, p_x);
    multiply_A(p_x, p_y);
    for (int32_t i = 0; i < N; ++i) {
        gp += (mu_x[i] - 2 * p_x[i]) * g_x[i];
        pp += p_x[i] * (p_x[i] - mu_x[i]);
    }
    gp *= r_w[k];
    pp *= r_w[k];
    for (int32_t i = 0; i < ROWS; ++i) {
        const real r = r_y(k, i);
        p_y[i] = mu_y[i] + p_y[i] / r;
        gp_y += r * (mu_y[i] - 2 * p_y[i]) * g_y[i];
        pp_y += r * p_y[i] * (p_y[i] - mu_y[i]);
    }
    const real root = positive_root(r_tau[k] + work->g_square, gp + gp_y - r_tau[k] * eta, pp + pp_y);
    const real tau = choose(s->first, 1, root), twice = 2 * tau - eta;
    for (int32_t i = 0; i < N; ++i) {
        const real w = p_x[i] - g_x[i] * tau;
        s->x[i] = 2 * w - mu_x[i];
        mu_x[i] += a * (w - mu_x[i]);
    }
    for (int32_t i = 0; i < ROWS; ++i) {
        p_y[i] -= g_y[i] * tau;
        s->y[i] = 2 * p_y[i] - mu_y[i];
    }
    project_cones(work, s->y, 1);
    for (int32_t i = 0; i < ROWS; ++i) {
        s->s[i] = r_y(k, i) * (s->y[i] + mu_y[i] - 2 * p_y[i]);
        mu_y[i] = 2 * p_y[i] - s->y[i] + a * (s->y[i] - p_y[i]);
    }
    s->tau = choose(twice < 0, 0, twice);
    s->v_tau = r_tau[k] * (s->tau + eta - 2 * tau);
    s->carry_tau = 2 * tau - s->tau + a * (s->tau - tau);
    s->first = 0;
}

/* tau, kept from zero: a point with tau = 0 then shows as one with huge residuals, not as NaN. */
static real divisor(real tau)
{
    return tau < (real)1e-12 ? (real)1e-12 : tau;
}

static void residuals(longstep_workspace *work, longstep_residuals *r)
{
    const longstep_state *const s = &work->state;
    const real *restrict b = work->b, *restrict c = work->c;
    real *restrict x = work->columns, *restrict Px = work->more_columns, *restrict Aty = work->other_columns;
    real *restrict y = work->rows, *restrict Ax = work->more_rows;
    const real one_over_tau = 1 / divisor(s->tau), size = work->size;
    real square = 0, quadratic = 0, linear = 0, support = 0;
    int32_t bad = 0;
    for (int32_t i = 0; i < N; ++i) x[i] = s->x[i] * one_over_tau;
    for (int32_t i = 0; i < ROWS; ++i) y[i] = s->y[i] * one_over_tau;
    multiply_A(x, Ax);
    multiply_P(x, Px);
    multiply_At(y, Aty);
    for (int32_t i = 0; i < ROWS; ++i) {
        const real slack = s->s[i] * one_over_tau, unit = one_over_e[i] * size;
        const real gap = (Ax[i] + slack - b[i]) * unit;
        support += b[i] * y[i];
        square += gap * gap;
        bad += wrong(gap);
        y[i] = magnitude(gap);
        Ax[i] = larger(larger(magnitude(Ax[i]), magnitude(slack)), magnitude(b[i])) * unit;
    }
    r->primal = SQRT(square);
    r->primal_max = choose(bad, (real)INFINITY, largest(y, ROWS));
    r->primal_scale = largest(Ax, ROWS);
    square = 0;
    bad = 0;
    for (int32_t i = 0; i < N; ++i) {
        const real unit = one_over_d[i] * size, gap = (Px[i] + Aty[i] + c[i]) * unit;
        quadratic += x[i] * Px[i];
        linear += x[i] * c[i];
        square += gap * gap;
        bad += wrong(gap);
        Px[i] = larger(larger(magnitude(Px[i]), magnitude(Aty[i])), magnitude(c[i])) * unit;
        Aty[i] = magnitude(gap);
    }
    r->dual = SQRT(square);
    r->dual_max = choose(bad, (real)INFINITY, largest(Aty, N));
    r->dual_scale = largest(Px, N);
    /* Objective values scale with the square of (b, c). */
    quadratic *= size * size;
    linear *= size * size;
    support *= size * size;
    r->gap = magnitude(quadratic + linear + support);
    r->gap_scale = larger(larger(magnitude(quadratic), magnitude(linear)), magnitude(support));
    r->objective = (real)0.5 * quadratic + linear;
}

static void keep_previous(longstep_workspace *work)
{
    (void)work;
}

/* With tau -> 0 the point itself, undivided, is the certificate. */
static int32_t infeasible(longstep_workspace *work, real eps)
{
    const longstep_state *const s = &work->state;
    real *restrict Ax = work->more_rows, *restrict Px = work->more_columns, *restrict Aty = work->other_columns;
    real growth = 0, descent = 0, size_x = 0, size_y = 0, most = 0, moved = 0;
    for (int32_t i = 0; i < ROWS; ++i) {
        growth -= work->b[i] * s->y[i];
        size_y = larger(size_y, magnitude(s->y[i]) / one_over_e[i]);
    }
    for (int32_t i = 0; i < N; ++i) {
        descent -= work->c[i] * s->x[i];
        size_x = larger(size_x, magnitude(s->x[i]) * d_scale[i]);
    }
    if (growth > 0) {
        multiply_At(s->y, Aty);
        for (int32_t i = 0; i < N; ++i) most = larger(most, magnitude(Aty[i]) * one_over_d[i]);
        if (most <= eps * growth && most <= SIZE_A * eps * size_y) return LONGSTEP_PRIMAL_INFEASIBLE;
    }
    if (!(descent > 0)) return 0;
    most = 0;
    multiply_A(s->x, Ax);
    multiply_P(s->x, Px);
    for (int32_t i = 0; i < N; ++i) most = larger(most, magnitude(Px[i]) * one_over_d[i]);
    for (int32_t i = 0; i < ROWS; ++i) moved = larger(moved, magnitude(Ax[i] + s->s[i]) * one_over_e[i]);
    const int still = most <= SIZE_P * eps * size_x && moved <= SIZE_A * eps * size_x;
    return still && larger(moved, most) <= eps * descent ? LONGSTEP_DUAL_INFEASIBLE : 0;
}

static void remember(longstep_workspace *work)
{
    memcpy(work->best.x, work->state.x, sizeof work->best.x);
    memcpy(work->best.y, work->state.y, sizeof work->best.y);
    memcpy(work->best.s, work->state.s, sizeof work->best.s);
    work->best.tau = work->state.tau;
}

static void point(const real *x, const real *y, const real *s, real scale, real *out_x, real *out_y, real *out_s)
{
    for (int32_t i = 0; i < N; ++i) out_x[place_x[i]] = x[i] * scale * d_scale[i];
    for (int32_t i = 0; i < ROWS; ++i) out_y[i] = y[i] * scale / one_over_e[i];
    if (out_s == NULL) return;
    for (int32_t i = 0; i < ROWS; ++i) out_s[i] = s[i] * scale * one_over_e[i];
}

static void extract_best(const longstep_workspace *work, longstep_result *r)
{
    point(work->best.x, work->best.y, work->best.s, work->size / divisor(work->best.tau), r->x, r->y, r->s);
}

static void extract_state(const longstep_workspace *work, longstep_result *r)
{
    const longstep_state *const s = &work->state;
    point(s->x, s->y, s->s, work->size / divisor(s->tau), r->x, r->y, r->s);
}

void longstep_ray(const longstep_workspace *work, real *x, real *y)
{
    point(work->state.x, work->state.y, NULL, work->size, x, y, NULL);
}

static void start_from(longstep_workspace *work, const longstep_start *start)
{
    longstep_state *const s = &work->state;
    memset(s, 0, sizeof *s);
    s->tau = s->carry_tau = 1;
    s->first = 1;
    work->g_of = -1;
    if (start == NULL) return;
    for (int32_t i = 0; i < N; ++i) s->x[i] = start->x[place_x[i]] / d_scale[i];
    multiply_A(s->x, s->s);
    for (int32_t i = 0; i < ROWS; ++i) {
        s->y[i] = start->y == NULL ? 0 : start->y[i] * one_over_e[i];
        s->s[i] = start->s == NULL ? work->size * work->b[i] - s->s[i] : start->s[i] / one_over_e[i];
    }
    /* Every step leaves y in K* and s in K; a start need not. */
    project_cones(work, s->y, 1);
    project_cones(work, s->s, 0);
    for (int32_t i = 0; i < ZERO; ++i) s->s[i] = 0;
    for (int32_t i = 0; i < N; ++i) s->carry_x[i] = s->x[i] /= work->size;
    for (int32_t i = 0; i < ROWS; ++i) {
        s->carry_y[i] = s->y[i] /= work->size;
        s->s[i] /= work->size;
    }
}
