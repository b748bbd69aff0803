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
