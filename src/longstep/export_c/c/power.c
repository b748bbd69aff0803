/* The power cone x^a y^(1-a) >= |z|, x, y >= 0 (Hien 2015). With r the last entry of the projection of (x, y, z), z > 0,
 * and q = r (z - r), the others are the positive roots of p^2 - xp = aq and p^2 - yp = (1 - a)q. The unknown is
 * t = log r - log(z - r), which keeps all digits at either end. */

typedef struct {
    real v[3], size, p[3], q;
    int inside, polar;
} power_place;

/* The positive root p of p^2 - start p = product, without cancellation; d log p / d log product. */
static real power_root(real start, real product, real *share)
{
    const real root = SQRT(start * start + 4 * product), below = root - start;
    const real p = start > 0 ? (real)0.5 * (start + root) : 2 * product / (below == 0 ? 1 : below);
    *share = p * root == 0 ? product : product / (p * root);
    return p;
}

/* The logarithm of r less that of the cone's bound on it. */
static void power_excess(const real *given, real t, real *value, real *slope)
{
    const real a = given[3], up = 1 / (1 + EXP(-t)), down = 1 / (1 + EXP(t));
    const real r = given[2] * up, rest = given[2] * down;
    real share_x, share_y;
    const real x = power_root(given[0], a * r * rest, &share_x);
    const real y = power_root(given[1], (1 - a) * r * rest, &share_y);
    *value = LOG(r) - a * LOG(x) - (1 - a) * LOG(y);
    *slope = down - (a * share_x + (1 - a) * share_y) * (down - up);
}

static void locate_power(const real *z, real a, power_place *place)
{
    const real end = (real)-2.2 * LOG(EPSILON);
    real *const v = place->v, share, given[4];
    place->size = size_of(z);
    for (int i = 0; i < 3; ++i) v[i] = z[i] / place->size;
    const real x = v[0], y = v[1], height = magnitude(v[2]);
    place->inside = x > 0 && y > 0 && (height == 0 || a * LOG(x) + (1 - a) * LOG(y) >= LOG(height));
    place->polar = x < 0 && y < 0 && (height == 0 || a * LOG(-x / a) + (1 - a) * LOG(-y / (1 - a)) >= LOG(height));
    if (place->inside || place->polar) return;
    given[0] = x;
    given[1] = y;
    /* Without z, the derivative is that of a z next to none. */
    given[2] = larger(height, EPSILON * SQRT(EPSILON));
    given[3] = a;
    const real t = find_root(power_excess, given, -end, end);
    const real r = given[2] / (1 + EXP(-t)), rest = given[2] / (1 + EXP(t));
    place->q = r * rest;
    place->p[0] = power_root(x, a * place->q, &share);
    place->p[1] = power_root(y, (1 - a) * place->q, &share);
    place->p[2] = v[2] < 0 ? -r : r;
}

static void nearest_power(real *z, real a)
{
    power_place place;
    locate_power(z, a, &place);
    if (place.inside) return;
    if (place.polar) {
        z[0] = z[1] = z[2] = 0;
    } else if (z[2] == 0) {
        /* Without z, what is left is the quadrant. */
        z[0] = larger(z[0], 0);
        z[1] = larger(z[1], 0);
    } else {
        for (int i = 0; i < 3; ++i) z[i] = place.p[i] * place.size;
    }
}

static void project_power(real *z, real a, int dual)
{
    real v[3];
    const int32_t bad = turn(z, dual, v);
    nearest_power(v, a);
    turn_back(v, dual, bad, z);
}
