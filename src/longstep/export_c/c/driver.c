/* The loop: steps, checks, the safeguard, and what is reported. The algorithm is above. */

/* The largest residual in units of its tolerance: solved means <= 1; infinite where one, or the objective, is NaN or
 * infinite. */
static real violation(const longstep_residuals *r, const longstep_settings *settings)
{
    const real value[3] = {r->primal_max, r->dual_max, r->gap};
    const real scale[3] = {r->primal_scale, r->dual_scale, r->gap_scale};
    real worst = 0;
    int32_t bad = wrong(r->objective);
    for (int i = 0; i < 3; ++i) {
        const real ratio = value[i] / larger(settings->eps_abs + settings->eps_rel * scale[i], (real)1e-30);
        bad += wrong(value[i]);
        worst = larger(worst, ratio > REAL_MAX ? REAL_MAX : ratio);
    }
    return choose(bad, (real)INFINITY, worst);
}

/* The residuals of the state; known already where the safeguard has just looked at it. */
static const longstep_residuals *judged(longstep_workspace *work)
{
    if (!work->fresh) {
        residuals(work, &work->residuals);
        work->fresh = 1;
    }
    return &work->residuals;
}

#if SAFEGUARD
/* What the safeguard wants to see fall. */
static real merit(const longstep_residuals *r)
{
    const real sum = r->primal + r->dual;
    return choose(sum != sum, sum, larger(r->primal, r->dual));
}

static void watch(longstep_workspace *work)
{
    work->anchored = *judged(work);
    work->merit = merit(&work->anchored);
    memcpy(&work->past.anchor, &work->state, sizeof work->state);
}

/* Where the merit did not fall the state goes back to the anchor, and takes safe steps: over the next block, or from then
 * on where it failed often enough. Copies go one way or the other, so that the work is the same. */
static void settle(longstep_workspace *work)
{
    const longstep_residuals *r = judged(work);
    const real now = merit(r), scale = larger(r->primal_scale, r->dual_scale);
    /* Written so that NaN fails. */
    const int failed = !(now <= GROWTH * work->merit + ROOT_EPSILON * (1 + scale)) & !work->safe;
    longstep_state *const states[2] = {&work->past.anchor, &work->state};
    longstep_residuals *const judgements[2] = {&work->anchored, &work->residuals};
    const real merits[2] = {now, work->merit};
    memcpy(states[failed], states[!failed], sizeof work->state);
    memcpy(judgements[failed], judgements[!failed], sizeof work->residuals);
    work->merit = merits[failed];
    work->failures += failed;
    work->safe = failed | (work->failures >= FAILURES);
}
#endif

/* Whether step k needs what the step before it did not: another factor, or what the safeguard may have changed. Of the
 * schedule alone, so that safe steps are as much work. */
static int begins(int32_t k)
{
#if HORIZON && SAFEGUARD == 1
    return k == 0 || which[k] != which[k - 1] || ends[k - 1];
#elif HORIZON
    return k == 0 || which[k] != which[k - 1] || SAFEGUARD;
#else
    return k == 0;
#endif
}

/* Step k of the step-varying phase, guarded. */
static void vary(longstep_workspace *work, int32_t k)
{
    if (begins(k)) forget(work);
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

#if LADDER
/* The logarithms of the relative residuals, of what is split alone. */
static void balance(longstep_workspace *work, real *primal, real *dual)
{
    const longstep_residuals *const r = judged(work);
#if CONDENSED
    *primal = LOG(work->split[0] / (work->split[1] + RUNG_TINY) + RUNG_TINY);
    *dual = LOG(r->dual_max / (work->split[2] + RUNG_TINY) + RUNG_TINY);
#else
    *primal = LOG(r->primal_max / (r->primal_scale + RUNG_TINY) + RUNG_TINY);
    *dual = LOG(r->dual_max / (r->dual_scale + RUNG_TINY) + RUNG_TINY);
#endif
}

/* Where the relative residuals are far out of balance and hardly fell, to the rung nearest to the root of their ratio
 * times the present one, some times at most; where they fall too slowly, or late, to the second part's own rung. `number`
 * counts steps of the steady state. */
static void climb(longstep_workspace *work, int32_t number)
{
    if (number == 0 || number % RUNG_EVERY) return;
    real primal, dual;
    balance(work, &primal, &dual);
    const real wanted = (real)0.5 * (primal - dual), level = larger(primal, dual);
    const int falls = level < work->fallen - RUNG_PROGRESS;
    const int32_t steady = -(int32_t)(work->place == HORIZON);
    const int32_t rung = (RUNG_FIRST & steady) | ((work->place - HORIZON - 1) & ~steady);
    const int second = rung > RUNG_LAST;
    const int32_t low = (RUNG_LAST + 1) & -second, high = ((RUNGS - 1) & -second) | (RUNG_LAST & ~-second);
    const real target = rung_log[rung] + wanted;
    /* Without branches, so that the work is the same. All rungs are looked at, those of the other ladder in vain. */
    int32_t nearest = low;
    real least = magnitude(rung_log[low] - target);
    for (int32_t i = 0; i < RUNGS; ++i) {
        const real gap = magnitude(rung_log[i] - target);
        const int32_t nearer = -(int32_t)((i >= low) & (i <= high) & (gap < least));
        nearest = (nearest & ~nearer) | (i & nearer);
        least = nearer ? gap : least;
    }
    /* Written so that NaN stays. */
    const int far = magnitude(wanted) > RUNG_THRESHOLD, sound = !wrong(wanted), may = work->moves < RUNG_MOST;
    const int32_t goes = -(int32_t)((number >= RUNG_WAIT) & far & sound & !falls & may & (nearest != rung));
    work->place = (work->place & ~goes) | ((nearest + HORIZON + 1) & goes);
    work->moves -= goes;
    if (RUNG_SECOND >= 0) {
        const int at_mark = RUNG_AT_MARK(number);
        const int stuck = at_mark & (number > RUNG_FIRST_MARK) & !(level < work->mark - RUNG_ENOUGH);
        const int32_t leaves = -(int32_t)((stuck | (number == RUNG_PATIENCE)) & !second);
        work->place = (work->place & ~leaves) | ((RUNG_SECOND + HORIZON + 1) & leaves);
        work->moves &= ~leaves;
        if (at_mark) work->mark = level;
    }
    work->fallen = level;
    /* Moved or not, so that the work is the same. */
    forget(work);
}
#endif

static void stay(longstep_workspace *work)
{
    if (work->k == HORIZON - work->first) forget(work);
#if LADDER
    climb(work, work->k - (HORIZON - work->first));
    step(work, work->place);
#else
    step(work, HORIZON);
#endif
    work->fresh = 0;
}

static void keep_best(longstep_workspace *work)
{
    remember(work);
    work->objective = work->residuals.objective;
    work->primal_residual = work->residuals.primal_max;
    work->dual_residual = work->residuals.dual_max;
}

/* Judge the state at iteration k. */
static void check(longstep_workspace *work, const longstep_settings *settings, int steady)
{
#if CONDENSED
    /* All residuals only where they may pass, or where they are there. */
    if (!work->fresh && is_far(work, settings) && !(steady && is_suspect(work, settings->eps_infeasible))) {
        work->suspect = 0;
        work->iterations = work->k;
        return;
    }
#endif
    const longstep_residuals *r = judged(work);
    const real v = violation(r, settings);
    const int failed = !(v <= REAL_MAX) && (steady || !SAFEGUARD);
    int32_t status = failed ? LONGSTEP_NUMERICAL_FAILURE : LONGSTEP_RUNNING, suspect = 0;
    if (steady && !(v <= 1)) {
        /* While the hyperparameters vary, differences of iterates say nothing about rays. */
        suspect = infeasible(work, settings->eps_infeasible);
        if (suspect == work->suspect && !failed && suspect) status = suspect;
    }
    if (v <= 1) status = LONGSTEP_SOLVED;
    if (v < work->best_violation) {
        work->best_violation = v;
        keep_best(work);
    }
    work->suspect = suspect;
    work->status = status;
    work->iterations = work->k;
}

#if FINISH
/* After how many steps the finish is first tried with these tolerances. */
static int32_t first_try(const longstep_settings *settings)
{
    const real eps = settings->eps_abs > settings->eps_rel ? settings->eps_abs : settings->eps_rel;
    return eps >= PATIENCE_EPS ? PATIENCE : FINISH_AFTER;
}

${finish}
#endif
/* Blocks of steps, a check after each, in one phase of the schedule. */
static void phase(longstep_workspace *work, const longstep_settings *settings, int32_t end, int steady)
{
    while (work->k < end && work->status == LONGSTEP_RUNNING) {
#if FINISH
        const int32_t next = work->finish.next, left = (next > work->k && next < end ? next : end) - work->k;
#else
        const int32_t left = end - work->k;
#endif
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
#if FINISH
        if (work->status == LONGSTEP_RUNNING && work->k == work->finish.next) attempt(work, settings);
#endif
    }
}

/* The instance, the start, and nothing judged yet. */
static longstep_status prepare(longstep_workspace *work, const longstep_settings *settings, const real *parameter,
                            const longstep_start *start)
{
    work->k = work->iterations = work->suspect = work->safe = work->failures = work->fresh = 0;
#if LADDER
    work->place = HORIZON;
    work->moves = 0;
    work->fallen = work->mark = (real)INFINITY;
#endif
#if FINISH
    work->finish.exact = -1;
    /* The active set of a warm start is tried at once. */
    work->finish.next = start != NULL && FINISH_BY_SETS ? 0 : first_try(settings);
#endif
    work->status = LONGSTEP_BAD_INPUT;
    work->first = start != NULL && !LONGSTEP_WARM ? HORIZON : 0;
    if (settings->check_every < 1 || settings->max_iter < 0 || settings->steps < -1 || !(settings->eps_abs >= 0) ||
        !(settings->eps_rel >= 0) || !(settings->eps_infeasible >= 0)) {
        return LONGSTEP_BAD_INPUT;
    }
    if (settings->steps < 0 && settings->eps_abs < LONGSTEP_LEAST_EPS && settings->eps_rel < LONGSTEP_LEAST_EPS) {
        work->status = LONGSTEP_BAD_TOLERANCE;
        return LONGSTEP_BAD_TOLERANCE;
    }
    if (!load(work, parameter)) return LONGSTEP_BAD_INPUT;
    start_from(work, start);
#if PREDICTED
    if (start == NULL) predict(work, parameter);
#endif
    work->status = LONGSTEP_RUNNING;
    return LONGSTEP_RUNNING;
}

/* Judge the start. */
static void look(longstep_workspace *work, const longstep_settings *settings)
{
#if SAFEGUARD
    watch(work);
#endif
#if CONDENSED
    if (!work->fresh && is_far(work, settings)) {
        work->best_violation = (real)INFINITY;
        owe(work);
        return;
    }
#endif
    const real v = violation(judged(work), settings);
    work->best_violation = v <= REAL_MAX ? v : (real)INFINITY;
    keep_best(work);
    if (v <= 1) work->status = LONGSTEP_SOLVED;
}

longstep_status longstep_begin(longstep_workspace *work, const longstep_settings *settings, const real *parameter,
                               const longstep_start *start)
{
    if (prepare(work, settings, parameter, start) != LONGSTEP_RUNNING) return (longstep_status)work->status;
    look(work, settings);
#if FINISH
    if (work->status == LONGSTEP_RUNNING && work->finish.next == 0) attempt(work, settings);
#endif
    return (longstep_status)work->status;
}

longstep_status longstep_advance(longstep_workspace *work, const longstep_settings *settings, int32_t more)
{
    const int32_t left = settings->max_iter - work->k;
    const int32_t end = work->k + (more < left ? more : left);
    const int32_t varying = HORIZON - work->first;
    if (work->status == LONGSTEP_RUNNING) phase(work, settings, varying < end ? varying : end, 0);
    if (work->status == LONGSTEP_RUNNING) phase(work, settings, end, 1);
    return (longstep_status)work->status;
}

static longstep_status report(longstep_workspace *work, longstep_result *result)
{
    result->objective = OBJECTIVE_SIGN * (work->objective + work->shift);
    result->primal_residual = work->primal_residual;
    result->dual_residual = work->dual_residual;
    result->status = work->status;
    result->iterations = work->iterations;
    result->safeguarded = work->failures > 0;
    result->outside = work->outside;
#if FINISH
    result->changes = work->finish.exact;
#endif
    return (longstep_status)work->status;
}

longstep_status longstep_finish(longstep_workspace *work, const longstep_settings *settings, longstep_result *result)
{
    if (work->status >= LONGSTEP_BAD_INPUT) {
        memset(result, 0, sizeof *result);
        result->status = work->status;
        return (longstep_status)work->status;
    }
    if (work->status == LONGSTEP_RUNNING) {
#if CONDENSED
        /* The last point may not have been judged in full. */
        const real v = violation(judged(work), settings);
        if (v < work->best_violation) {
            work->best_violation = v;
            keep_best(work);
        }
#endif
        work->status = work->k < settings->max_iter ? LONGSTEP_TIME_LIMIT : LONGSTEP_ITERATION_LIMIT;
    }
#if CONDENSED
    if (work->owed) {
        recall(work);
        judged(work);
        keep_best(work);
    }
#endif
    extract_best(work, result);
    return report(work, result);
}

/* Exactly so many steps and no check on the way. */
static longstep_status fixed(longstep_workspace *work, const longstep_settings *settings, longstep_result *result)
{
    const int32_t count = settings->steps, most = HORIZON - work->first;
    const int32_t varying = most < count ? most : count;
#if SAFEGUARD
    if (varying) watch(work);
#endif
    for (; work->k < varying; ++work->k) vary(work, work->first + work->k);
#if SAFEGUARD == 1
    if (varying && count < most) settle(work);
#endif
    for (; work->k < count; ++work->k) stay(work);
    const real v = violation(judged(work), settings);
    work->status = LONGSTEP_ITERATION_LIMIT;
    work->status += (LONGSTEP_SOLVED - LONGSTEP_ITERATION_LIMIT) * (v <= 1);
    work->status += (LONGSTEP_NUMERICAL_FAILURE - LONGSTEP_ITERATION_LIMIT) * !(v <= REAL_MAX);
    work->iterations = count;
    work->objective = work->residuals.objective;
    work->primal_residual = work->residuals.primal_max;
    work->dual_residual = work->residuals.dual_max;
    extract_state(work, result);
    return report(work, result);
}

longstep_status longstep_solve_from(longstep_workspace *work, const longstep_settings *settings, const real *parameter,
                                    const longstep_start *start, longstep_result *result)
{
    if (settings->steps >= 0) {
        if (prepare(work, settings, parameter, start) == LONGSTEP_RUNNING) return fixed(work, settings, result);
        return longstep_finish(work, settings, result);
    }
    longstep_begin(work, settings, parameter, start);
    longstep_advance(work, settings, settings->max_iter);
    return longstep_finish(work, settings, result);
}

longstep_status longstep_solve(longstep_workspace *work, const longstep_settings *settings, const real *parameter,
                               longstep_result *result)
{
    return longstep_solve_from(work, settings, parameter, NULL, result);
}

void longstep_defaults(longstep_settings *settings)
{
    settings->eps_abs = settings->eps_rel = (real)1e-4;
    settings->eps_infeasible = EPS_INFEASIBLE;
    settings->max_iter = 10000;
    settings->check_every = 5;
    settings->steps = -1;
}

size_t longstep_workspace_bytes(void)
{
    return sizeof(longstep_workspace);
}

size_t longstep_result_bytes(void)
{
    return sizeof(longstep_result);
}
