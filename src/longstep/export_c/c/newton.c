
/* The finish: Newton's method on the conditions of optimality. With v = y - s and y = the projection of v onto K*, every
 * point has y in K*, s = y - v in K and y's = 0, and what is left is F = (Px + A'y + c, Ax + s - b). A proximal term makes
 * every step well defined; it shrinks while |F| falls. Steps after which |F| is a little larger are taken too: they lead
 * from one piece of F to another. */

/* y and F of the point; |F|. */
static real measure(longstep_workspace *work)
{
    longstep_finish_space *const f = &work->finish;
    real *restrict F_x = f->F_x, *restrict F_v = f->F_v, *restrict Aty = work->columns;
    real square = 0, more = 0;
    memcpy(f->y, f->v, sizeof f->y);
    project_cones(work, f->y, 1);
    multiply_P(f->x, F_x);
    multiply_At(f->y, Aty);
    multiply_A(f->x, F_v);
    for (int32_t i = 0; i < N; ++i) {
        F_x[i] += Aty[i] + work->c[i];
        square += F_x[i] * F_x[i];
    }
    for (int32_t i = 0; i < ROWS; ++i) {
        F_v[i] += f->y[i] - f->v[i] - work->b[i];
        more += F_v[i] * F_v[i];
    }
    return SQRT(square + more);
}

/* The point after a step; whether there is one. */
static int move(longstep_workspace *work, real p)
{
    longstep_finish_space *const f = &work->finish;
    real *restrict dx = work->columns, *restrict pull = work->more_columns;
    real *restrict spread = work->rows, *restrict rest = work->more_rows;
    form_system(work, p);
    if (!factorize(f)) return 0;
    memcpy(spread, f->F_v, sizeof f->F_v);
    apply_weights(work, p, spread);
    multiply_At(spread, pull);
    for (int32_t i = 0; i < N; ++i) dx[i] = f->F_x[i] + pull[i];
    solve_system(f, dx);
    multiply_A(dx, rest);
    for (int32_t i = 0; i < ROWS; ++i) spread[i] = rest[i] -= f->F_v[i];
    apply_weights(work, p, spread);
    for (int32_t i = 0; i < N; ++i) f->x[i] -= dx[i];
    for (int32_t i = 0; i < ROWS; ++i) f->v[i] -= (spread[i] + rest[i]) / (1 + p);
    return 1;
}

/* Newton steps from the point, to the best that they lead to. */
static void search(longstep_workspace *work)
{
    longstep_finish_space *const f = &work->finish;
    real norm = measure(work), p = NEWTON_PROXIMAL, least = norm;
    memcpy(f->best_x, f->x, sizeof f->x);
    memcpy(f->best_v, f->v, sizeof f->v);
    for (f->changes = 0; least > NEWTON_CLOSE && f->changes < NEWTON_STEPS;) {
        ++f->changes;
        memcpy(f->last_x, f->x, sizeof f->x);
        memcpy(f->last_v, f->v, sizeof f->v);
        const real following = move(work, p) ? measure(work) : (real)INFINITY;
        /* Written so that NaN is no progress. */
        const int better = following < norm;
        /* What does not get better at such a point is rounding. */
        if (!better && least <= FINISH_ACCURACY) break;
        if (following < NEWTON_WORSE * norm) {
            norm = following;
        } else {
            memcpy(f->x, f->last_x, sizeof f->x);
            memcpy(f->v, f->last_v, sizeof f->v);
            measure(work);
        }
        p = better ? NEWTON_LESS * p : NEWTON_MORE * p;
        if (!better && p > NEWTON_MOST_PROXIMAL) p = NEWTON_MOST_PROXIMAL;
        if (norm < least) {
            least = norm;
            memcpy(f->best_x, f->x, sizeof f->x);
            memcpy(f->best_v, f->v, sizeof f->v);
        }
    }
    memcpy(f->x, f->best_x, sizeof f->x);
    memcpy(f->v, f->best_v, sizeof f->v);
    measure(work);
}

/* The point as the state, judged: its largest residual in units of 1e-9 and of the tolerances. */
static real placed(longstep_workspace *work, const longstep_settings *settings)
{
    const longstep_finish_space *const f = &work->finish;
    longstep_state *const state = &work->state;
    longstep_settings strict = *settings;
    strict.eps_abs = strict.eps_rel = FINISH_ACCURACY;
    memcpy(state->x, f->x, sizeof f->x);
    memcpy(state->y, f->y, sizeof f->y);
    for (int32_t i = 0; i < ROWS; ++i) state->s[i] = f->y[i] - f->v[i];
    state->tau = 1;
    work->fresh = 0;
    const longstep_residuals *const r = judged(work);
    return larger(violation(r, settings), violation(r, &strict));
}

/* Try to finish from the state. Where that does not lead to an exact point, all is as it was before. */
static void attempt(longstep_workspace *work, const longstep_settings *settings)
{
    longstep_finish_space *const f = &work->finish;
    const longstep_state *const state = &work->state;
    const int32_t fresh = work->fresh, k = work->k, after = first_try(settings);
    const real one_over_tau = 1 / divisor(state->tau);
    f->next = 2 * k > after ? 2 * k : after;
    if (f->next < 1) f->next = 1;
    memcpy(&f->kept, state, sizeof f->kept);
    f->judged = work->residuals;
    for (int32_t i = 0; i < N; ++i) f->x[i] = state->x[i] * one_over_tau;
    for (int32_t i = 0; i < ROWS; ++i) f->v[i] = (state->y[i] - state->s[i]) * one_over_tau;
    search(work);
    const real v = placed(work, settings);
    if (v <= 1) {
        work->status = LONGSTEP_SOLVED;
        work->best_violation = v;
        f->exact = f->changes;
        keep_best(work);
        return;
    }
    memcpy(&work->state, &f->kept, sizeof f->kept);
    work->residuals = f->judged;
    work->fresh = fresh;
}
