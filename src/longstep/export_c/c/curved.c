/* What projections onto curved cones of three entries share. */

/* A function of one variable that is given three entries and an exponent: its value and its derivative. */
typedef void (*curved_function)(const real *given, real at, real *value, real *slope);

/* Where a function rises through zero between low and high, to rounding; the end it stays closest to, if nowhere. Newton's
 * steps are taken as long as they stay between the points that are known to lie on either side and halve from one to the
 * next; else that interval is halved. */
static real find_root(curved_function function, const real *given, real low, real high)
{
    const real close = SQRT(SQRT(EPSILON));
    real at = low + (real)0.5 * (high - low), last = (real)INFINITY;
    if (!(low < high)) return at;
    for (int count = 0; count < 100; ++count) {
        real value, slope, following;
        function(given, at, &value, &slope);
        const int below = value < 0;
        const real step = magnitude(value / slope), newton = below ? at + step : at - step;
        if (below) low = at;
        else high = at;
        const int near = step <= close, halves = 2 * step < last;
        const int good = newton >= low && newton <= high && (near || halves);
        following = good ? newton : low + (real)0.5 * (high - low);
        /* Close to the root, Newton's steps that do not halve any more are rounding. */
        const int done = magnitude(following - at) <= 4 * EPSILON * larger(magnitude(at), 1) || (good && near && !halves);
        at = following;
        last = good ? step : (real)INFINITY;
        if (done) break;
    }
    return at;
}

/* The largest entry, one where all are zero: to divide by, which cones allow. */
static real size_of(const real *v)
{
    const real size = larger(magnitude(v[0]), larger(magnitude(v[1]), magnitude(v[2])));
    return size == 0 ? 1 : size;
}

static real clamp(real value, real low, real high)
{
    value = value < low ? low : value;
    return value > high ? high : value;
}

/* The projection onto the dual cone is z and that of v = -z onto the cone (Moreau 1962). What is no number stays none. */
static int32_t turn(const real *z, int dual, real *v)
{
    for (int i = 0; i < 3; ++i) v[i] = dual ? -z[i] : z[i];
    return wrong(z[0]) + wrong(z[1]) + wrong(z[2]);
}

static void turn_back(const real *v, int dual, int32_t bad, real *z)
{
    for (int i = 0; i < 3; ++i) z[i] = dual ? z[i] + v[i] : v[i];
    if (bad) z[0] = (real)NAN;
}
