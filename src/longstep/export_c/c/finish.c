
/* The finish: from the active set of the state to the exact point. With K the inverse of H over the active rows, bounds t
 * and g the values where nothing is active, the multipliers are K (g - t) and the values g - H y. Rows whose multiplier
 * would get the wrong sign leave on the way there, then the row that is violated most enters, until none is: each change
 * raises the dual objective. */

/* out = K x. Four rows at a time, because one sum would wait for itself. */
static void multiply_set(const longstep_finish_space *f, const real *restrict x, real *restrict out)
{
    int32_t a = 0;
    for (; a + 4 <= f->count; a += 4) {
        const real *restrict K0 = f->K[a], *restrict K1 = f->K[a + 1];
        const real *restrict K2 = f->K[a + 2], *restrict K3 = f->K[a + 3];
        real sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
        for (int32_t b = 0; b < f->count; ++b) {
            sum0 += K0[b] * x[b];
            sum1 += K1[b] * x[b];
            sum2 += K2[b] * x[b];
            sum3 += K3[b] * x[b];
        }
        out[a] = sum0;
        out[a + 1] = sum1;
        out[a + 2] = sum2;
        out[a + 3] = sum3;
    }
    for (; a < f->count; ++a) {
        const real *restrict K = f->K[a];
        real sum = 0;
        for (int32_t b = 0; b < f->count; ++b) sum += K[b] * x[b];
        out[a] = sum;
    }
}

/* out -= H y, for y that is zero but at the active rows. */
static void subtract_active(const longstep_finish_space *f, const real *restrict y, real *restrict out)
{
    int32_t a = 0;
    for (; a + 4 <= f->count; a += 4) {
        const real *restrict H0 = gram + (size_t)f->row[a] * INNER, *restrict H1 = gram + (size_t)f->row[a + 1] * INNER;
        const real *restrict H2 = gram + (size_t)f->row[a + 2] * INNER, *restrict H3 = gram + (size_t)f->row[a + 3] * INNER;
        const real y0 = y[a], y1 = y[a + 1], y2 = y[a + 2], y3 = y[a + 3];
        for (int32_t i = 0; i < INNER; ++i) out[i] -= H0[i] * y0 + H1[i] * y1 + H2[i] * y2 + H3[i] * y3;
    }
    for (; a < f->count; ++a) {
        const real *restrict H = gram + (size_t)f->row[a] * INNER;
        for (int32_t i = 0; i < INNER; ++i) out[i] -= H[i] * y[a];
    }
}

/* w = K h for the row that is to enter; what is left of its own entry of H. */
static real column_of(longstep_finish_space *f, int32_t row)
{
    const real *restrict H = gram + (size_t)row * INNER;
    real rest = H[row];
    for (int32_t a = 0; a < f->count; ++a) f->h[a] = H[f->row[a]];
    multiply_set(f, f->h, f->w);
    for (int32_t a = 0; a < f->count; ++a) rest -= f->h[a] * f->w[a];
    return rest;
}

static void enter(longstep_finish_space *f, int32_t row, int32_t side, real rest, real y)
{
    const int32_t last = f->count++;
    const real corner = 1 / rest;
    for (int32_t a = 0; a < last; ++a) {
        real *restrict K = f->K[a];
        const real scaled = f->w[a] * corner;
        for (int32_t b = 0; b < last; ++b) K[b] += scaled * f->w[b];
        K[last] = f->K[last][a] = -scaled;
    }
    f->K[last][last] = corner;
    f->row[last] = row;
    f->side[last] = side;
    f->y[last] = y;
}

static void leave(longstep_finish_space *f, int32_t slot)
{
    const int32_t last = --f->count;
    const real corner = 1 / f->K[slot][slot];
    for (int32_t b = 0; b <= last; ++b) f->h[b] = f->K[slot][b];
    for (int32_t a = 0; a <= last; ++a) {
        real *restrict K = f->K[a];
        const real scaled = f->h[a] * corner;
        for (int32_t b = 0; b <= last; ++b) K[b] -= scaled * f->h[b];
    }
    /* The last one takes the place. */
    for (int32_t b = 0; b <= last; ++b) f->K[slot][b] = f->K[last][b];
    for (int32_t a = 0; a <= last; ++a) f->K[a][slot] = f->K[a][last];
    f->row[slot] = f->row[last];
    f->side[slot] = f->side[last];
    f->y[slot] = f->y[last];
}

static real bound_of(const longstep_workspace *work, int32_t row, int32_t side)
{
    return side > 0 ? work->u[EQUALITIES + row] : work->l[EQUALITIES + row];
}

/* Some rows at once, at most PANEL of them, without those that depend on others: K is read and written once for all. */
static void enter_panel(longstep_finish_space *f, const int32_t *row, int32_t rows, const real *y)
{
    real (*restrict h)[LONGSTEP_SLOTS_] = f->panel[0], (*restrict w)[LONGSTEP_SLOTS_] = f->panel[1];
    /* What is left of H over the panel, and its inverse over those that are taken. */
    real left[PANEL][PANEL], inverse[PANEL][PANEL], column[PANEL];
    int32_t taken[PANEL], count = 0;
    const int32_t old = f->count;
    for (int32_t c = 0; c < PANEL; ++c)
        for (int32_t a = 0; a < old; ++a) h[c][a] = c < rows ? gram[(size_t)row[c] * INNER + f->row[a]] : 0;
    for (int32_t a = 0; a < old; ++a) {
        const real *restrict K = f->K[a];
        real sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
        for (int32_t b = 0; b < old; ++b) {
            sum0 += K[b] * h[0][b];
            sum1 += K[b] * h[1][b];
            sum2 += K[b] * h[2][b];
            sum3 += K[b] * h[3][b];
        }
        w[0][a] = sum0;
        w[1][a] = sum1;
        w[2][a] = sum2;
        w[3][a] = sum3;
    }
    for (int32_t c = 0; c < rows; ++c) {
        const real own = gram[(size_t)row[c] * INNER + row[c]];
        real rest = own;
        for (int32_t a = 0; a < old; ++a) rest -= h[c][a] * w[c][a];
        for (int32_t d = 0; d < count; ++d) {
            real sum = gram[(size_t)row[c] * INNER + row[taken[d]]];
            for (int32_t a = 0; a < old; ++a) sum -= h[c][a] * w[taken[d]][a];
            left[count][d] = sum;
        }
        for (int32_t d = 0; d < count; ++d) {
            column[d] = 0;
            for (int32_t e = 0; e < count; ++e) column[d] += inverse[d][e] * left[count][e];
        }
        for (int32_t d = 0; d < count; ++d) rest -= left[count][d] * column[d];
        if (!(rest > DEPENDENT * own) || old + count == SLOTS) continue;
        for (int32_t d = 0; d < count; ++d) {
            for (int32_t e = 0; e < count; ++e) inverse[d][e] += column[d] * column[e] / rest;
            inverse[d][count] = inverse[count][d] = -column[d] / rest;
        }
        inverse[count][count] = 1 / rest;
        taken[count++] = c;
    }
    /* h takes the place of w times the inverse. */
    for (int32_t d = 0; d < PANEL; ++d)
        for (int32_t a = 0; a < old; ++a) {
            real sum = 0;
            for (int32_t e = 0; e < count && d < count; ++e) sum += inverse[d][e] * w[taken[e]][a];
            h[d][a] = sum;
        }
    const real *restrict w0 = w[count > 0 ? taken[0] : 0], *restrict w1 = w[count > 1 ? taken[1] : 0];
    const real *restrict w2 = w[count > 2 ? taken[2] : 0], *restrict w3 = w[count > 3 ? taken[3] : 0];
    for (int32_t a = 0; a < old; ++a) {
        real *restrict K = f->K[a];
        const real h0 = h[0][a], h1 = h[1][a], h2 = h[2][a], h3 = h[3][a];
        for (int32_t b = 0; b < old; ++b) K[b] += h0 * w0[b] + h1 * w1[b] + h2 * w2[b] + h3 * w3[b];
        for (int32_t d = 0; d < count; ++d) K[old + d] = f->K[old + d][a] = -h[d][a];
    }
    for (int32_t d = 0; d < count; ++d) {
        for (int32_t e = 0; e < count; ++e) f->K[old + d][old + e] = inverse[d][e];
        f->row[old + d] = row[taken[d]];
        f->side[old + d] = y[taken[d]] > 0 ? 1 : -1;
        f->y[old + d] = y[taken[d]];
    }
    f->count = old + count;
}

/* The rows that the multipliers name, without those that depend on others. */
static void seed(longstep_workspace *work)
{
    longstep_finish_space *const f = &work->finish;
    int32_t row[PANEL], rows = 0;
    real value[PANEL];
    f->count = f->changes = 0;
    for (int32_t i = 0; i < INNER; ++i) {
        const real y = cut(work->state.y[i], work->l[EQUALITIES + i], work->u[EQUALITIES + i]);
        if (y == 0) continue;
        row[rows] = i;
        value[rows++] = y;
        if (rows < PANEL) continue;
        enter_panel(f, row, rows, value);
        rows = 0;
    }
    enter_panel(f, row, rows, value);
}

/* The multipliers of the set, in `target`; the slot of the first that would lose its sign on the way there, or -1. */
static int32_t blocked_by(longstep_workspace *work, real *length)
{
    longstep_finish_space *const f = &work->finish;
    int32_t slot = -1;
    for (int32_t a = 0; a < f->count; ++a) f->h[a] = f->g[f->row[a]] - bound_of(work, f->row[a], f->side[a]);
    *length = 1;
    multiply_set(f, f->h, f->target);
#if PROXIMAL
    /* H has entries of very different sizes then: what the updates of K have lost is made up for. */
    memcpy(f->s, f->g, sizeof f->s);
    subtract_active(f, f->target, f->s);
    for (int32_t a = 0; a < f->count; ++a) f->h[a] = f->s[f->row[a]] - bound_of(work, f->row[a], f->side[a]);
    multiply_set(f, f->h, f->w);
    for (int32_t a = 0; a < f->count; ++a) f->target[a] += f->w[a];
#endif
    for (int32_t a = 0; a < f->count; ++a) {
        if (f->side[a] * f->target[a] >= 0) continue;
        const real ratio = f->y[a] / (f->y[a] - f->target[a]);
        if (slot < 0 || ratio < *length) {
            *length = ratio;
            slot = a;
        }
    }
    return slot;
}

/* The row that is violated most, in the norm of the dual; -1 where none is. */
static int32_t violated(longstep_workspace *work)
{
    longstep_finish_space *const f = &work->finish;
    const real *restrict l = work->l + EQUALITIES, *restrict u = work->u + EQUALITIES;
    real *restrict s = f->s;
    real most = 0;
    int32_t row = -1;
    memcpy(s, f->g, sizeof f->s);
    subtract_active(f, f->y, s);
    for (int32_t a = 0; a < f->count; ++a) s[f->row[a]] = bound_of(work, f->row[a], f->side[a]);
    for (int32_t i = 0; i < INNER; ++i) {
        const real outside = larger(s[i] - u[i], l[i] - s[i]);
        if (outside > f->noise[i] && outside * one_over_root[i] > most) {
            most = outside * one_over_root[i];
            row = i;
        }
    }
    return row;
}

/* A row that depends on the set takes the place of another: on this way all values stay, until a multiplier is zero. */
static int exchange(longstep_finish_space *f, int32_t row, int32_t sign)
{
    real length = (real)INFINITY, most = 0;
    int32_t slot = -1;
    for (int32_t a = 0; a < f->count; ++a) most = larger(most, magnitude(f->w[a]));
    for (int32_t a = 0; a < f->count; ++a) {
        const real way = -f->w[a] * sign;
        /* Nor those that only rounding moves. */
        if (f->side[a] * way >= -DEPENDENT * most) continue;
        const real limit = f->y[a] / -way;
        if (slot < 0 || limit < length) {
            length = limit;
            slot = a;
        }
    }
    if (slot < 0) return 0;
    for (int32_t a = 0; a < f->count; ++a) f->y[a] -= length * f->w[a] * sign;
    leave(f, slot);
    const real rest = column_of(f, row);
    if (!(rest > DEPENDENT * gram[(size_t)row * INNER + row])) return 0;
    enter(f, row, sign, rest, length * sign);
    return 1;
}

/* Changes until the set is optimal, or no more can be made; whether it came to that. */
static int search(longstep_workspace *work)
{
    longstep_finish_space *const f = &work->finish;
    for (; f->changes < MOST_CHANGES; ++f->changes) {
        real length;
        const int32_t slot = blocked_by(work, &length);
        for (int32_t a = 0; a < f->count; ++a)
            f->y[a] = slot < 0 ? f->target[a] : f->y[a] + length * (f->target[a] - f->y[a]);
        if (slot >= 0) {
            leave(f, slot);
            continue;
        }
        const int32_t row = violated(work);
        if (row < 0) return 1;
        const int32_t sign = f->s[row] > work->u[EQUALITIES + row] ? 1 : -1;
        const real rest = column_of(f, row);
        if (f->count < SLOTS && rest > DEPENDENT * gram[(size_t)row * INNER + row]) enter(f, row, sign, rest, 0);
        /* Nothing can leave: the instance has no solution, or what is violated is rounding. The point will tell. */
        else if (!exchange(f, row, sign)) return 1;
    }
    return 0;
}

/* g, and where v is without active rows; with a proximal term, around a center. */
static void unconstrained(longstep_workspace *work, const real *restrict center)
{
    longstep_finish_space *const f = &work->finish;
    real *restrict cost = work->columns;
#if PROXIMAL
    multiply_proximal(center, cost);
    for (int32_t i = 0; i < N; ++i) cost[i] = work->cost[i] - cost[i];
#else
    (void)center;
    memcpy(cost, work->cost, sizeof work->cost);
#endif
    multiply_inverse(cost, f->v);
    for (int32_t i = 0; i < N; ++i) f->v[i] = -f->v[i];
    multiply_A(f->v, f->g);
    for (int32_t i = 0; i < INNER; ++i) {
        f->g[i] += work->level[i];
        f->noise[i] = FINISH_ROUNDING * (1 + magnitude(work->level[i]) + magnitude(f->g[i]));
    }
}

/* One correction of v and of the multipliers by what is left of the set's conditions of optimality. */
static void correct(longstep_workspace *work)
{
    longstep_finish_space *const f = &work->finish;
    real *restrict slope = work->columns, *restrict pull = work->more_columns, *restrict value = work->rows;
    real *restrict full = work->more_rows;
    memset(full, 0, sizeof work->more_rows);
    for (int32_t a = 0; a < f->count; ++a) full[f->row[a]] = f->y[a];
    multiply_reduced(f->v, slope);
    multiply_At(full, pull);
    for (int32_t i = 0; i < N; ++i) slope[i] += work->cost[i] + pull[i];
    multiply_A(f->v, value);
    for (int32_t a = 0; a < f->count; ++a) {
        const real *restrict spread_a = spread + (size_t)f->row[a] * N;
        real sum = work->level[f->row[a]] + value[f->row[a]] - bound_of(work, f->row[a], f->side[a]);
        for (int32_t i = 0; i < N; ++i) sum -= spread_a[i] * slope[i];
        f->h[a] = sum;
    }
    multiply_inverse(slope, pull);
    for (int32_t i = 0; i < N; ++i) f->v[i] -= pull[i];
    multiply_set(f, f->h, f->w);
    for (int32_t a = 0; a < f->count; ++a) {
        const real *restrict spread_a = spread + (size_t)f->row[a] * N;
        f->y[a] += f->w[a];
        for (int32_t i = 0; i < N; ++i) f->v[i] -= spread_a[i] * f->w[a];
    }
}

/* The point of the set as the state, judged: its largest residual in units of 1e-9 and of the tolerances. */
static real placed(longstep_workspace *work, const longstep_settings *settings)
{
    longstep_finish_space *const f = &work->finish;
    longstep_state *const state = &work->state;
    longstep_settings strict = *settings;
    strict.eps_abs = strict.eps_rel = FINISH_ACCURACY;
    memcpy(state->v, f->v, sizeof state->v);
    multiply_A(f->v, state->z);
    for (int32_t i = 0; i < INNER; ++i) {
        state->z[i] += work->level[i];
        state->y[i] = 0;
    }
    for (int32_t a = 0; a < f->count; ++a) {
        state->y[f->row[a]] = f->y[a];
        state->z[f->row[a]] = bound_of(work, f->row[a], f->side[a]);
    }
    work->fresh = 0;
    const longstep_residuals *const r = judged(work);
    return larger(violation(r, settings), violation(r, &strict));
}

/* Try the state's active set. Where that does not lead to an exact point, all is as it was before. */
static void attempt(longstep_workspace *work, const longstep_settings *settings)
{
    longstep_finish_space *const f = &work->finish;
    const int32_t fresh = work->fresh, k = work->k, after = first_try(settings);
    real v = (real)INFINITY;
    f->next = 2 * k > after ? 2 * k : after;
    if (f->next < 1) f->next = 1;
    memcpy(&f->kept, &work->state, sizeof f->kept);
    f->judged = work->residuals;
    unconstrained(work, work->state.v);
    seed(work);
    int found = search(work);
#if PROXIMAL
    memcpy(f->center, work->state.v, sizeof f->center);
    for (int32_t outer = 0; found && outer <= FINISH_OUTER; ++outer) {
        if (outer) {
            unconstrained(work, f->center);
            found = search(work);
        }
        memcpy(f->v, f->center, sizeof f->v);
        for (int again = 0; found && again < FINISH_CORRECTIONS; ++again) correct(work);
        if (found) v = placed(work, settings);
        /* A thousandth of what is asked for: the rest is rounding. */
        if (v <= (real)1e-3) break;
        memcpy(f->center, f->v, sizeof f->center);
    }
#else
    if (found) {
        for (int32_t a = 0; a < f->count; ++a) {
            const real *restrict spread_a = spread + (size_t)f->row[a] * N;
            for (int32_t i = 0; i < N; ++i) f->v[i] -= spread_a[i] * f->y[a];
        }
        for (int again = 0; again < FINISH_CORRECTIONS && !(v <= 1); ++again) {
            correct(work);
            v = placed(work, settings);
        }
    }
#endif
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
