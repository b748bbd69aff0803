/* The exponential cone, the closure of y exp(x/y) <= z, y > 0 (Friberg 2021). Outside of cone and polar, off the flat face
 * x <= 0, y = 0, a point is s (rho, 1, e^rho) + u (1, 1 - rho, -e^-rho) with s, u >= 0: one of the cone and one of its
 * polar, at right angles. */

typedef struct {
    real v[3], size, rho, s, u;
    int inside, polar, flat;
} exponential_place;

/* s and u of a rho, by x and y alone. */
static void weigh_exponential(const real *v, real rho, real *s, real *u)
{
    const real square = rho * rho - rho + 1;
    *s = ((rho - 1) * v[0] + v[1]) / square;
    *u = (v[0] - rho * v[1]) / square;
}

/* s e^rho - u e^-rho - z */
static void exponential_excess(const real *v, real rho, real *value, real *slope)
{
    const real up = EXP(clamp(rho, -LOG_MAX, LOG_MAX)), down = EXP(clamp(-rho, -LOG_MAX, LOG_MAX));
    const real square = rho * rho - rho + 1;
    real s, u;
    weigh_exponential(v, rho, &s, &u);
    const real s_slope = (v[0] - s * (2 * rho - 1)) / square, u_slope = (-v[1] - u * (2 * rho - 1)) / square;
    *value = s * up - u * down - v[2];
    *slope = (s + s_slope) * up + (u - u_slope) * down;
}

/* Between the roots of the numerators of s and u, and where exponentials do not overflow. */
static real find_rho(const real *v)
{
    const real x = v[0], y = v[1];
    real low = -FAR, high = FAR;
    if (x > 0) low = larger(low, 1 - y / x);
    if (y < 0) low = larger(low, x / y);
    if (x < 0) high = clamp(1 - y / x, -FAR, high);
    if (y > 0) high = clamp(x / y, -FAR, high);
    low = clamp(low, -FAR, FAR);
    const real least = -LOG_MAX < high - 1 ? -LOG_MAX : high - 1, most = larger(LOG_MAX, low + 1);
    high = high < most ? high : most;
    low = larger(low, least);
    return find_root(exponential_excess, v, low, larger(low, high));
}

static void locate_exponential(const real *z, exponential_place *place)
{
    real *const v = place->v;
    place->size = size_of(z);
    for (int i = 0; i < 3; ++i) v[i] = z[i] / place->size;
    /* Comparing logarithms, nothing overflows. */
    place->inside = v[1] > 0 && v[2] > 0 && v[0] / v[1] <= LOG(v[2]) - LOG(v[1]);
    place->polar = v[0] > 0 && v[2] < 0 && v[1] / v[0] - 1 <= LOG(-v[2]) - LOG(v[0]);
    place->flat = v[0] <= 0 && v[1] <= 0;
    place->rho = place->s = place->u = 0;
    if (place->inside || place->polar || place->flat) return;
    place->rho = find_rho(v);
    weigh_exponential(v, place->rho, &place->s, &place->u);
    place->s = larger(place->s, 0);
    place->u = larger(place->u, 0);
}

static void nearest_exponential(real *z)
{
    exponential_place place;
    locate_exponential(z, &place);
    if (place.inside) return;
    if (place.polar) {
        z[0] = z[1] = z[2] = 0;
    } else if (place.flat) {
        z[1] = 0;
        z[2] = larger(z[2], 0);
    } else {
        /* Of s e^rho and z + u e^-rho, the one that does not blow up an error of rho. */
        const real small = EXP(-magnitude(place.rho));
        const real last = place.rho > 0 ? place.v[2] + place.u * small : place.s * small;
        z[0] = place.s * place.rho * place.size;
        z[1] = place.s * place.size;
        z[2] = larger(last, 0) * place.size;
    }
}

static void project_exponential(real *z, int dual)
{
    real v[3];
    const int32_t bad = turn(z, dual, v);
    nearest_exponential(v);
    turn_back(v, dual, bad, z);
}
