
/* Off the boundary of a curved cone the projection keeps what lies along the ray through the projected point, loses what
 * lies along the normal, and keeps a part of what is at right angles to both; the projection onto the dual cone is the
 * rest of that of -v. A basis has these directions, then the eigenvalues of D for each. */

static void set_basis(real *basis, real x, real y, real z)
{
    const real value[3] = {x, y, z};
    for (int i = 0; i < 3; ++i) {
        for (int j = 0; j < 3; ++j) basis[3 * i + j] = i == j;
        basis[9 + i] = value[i];
    }
}

static void normalize_direction(real *v)
{
    const real size = size_of(v);
    for (int i = 0; i < 3; ++i) v[i] /= size;
    const real norm = SQRT(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    for (int i = 0; i < 3; ++i) v[i] /= norm;
}

/* The basis of a ray and a normal; `rest` is what is lost of the direction across. */
static void turn_basis(real *basis, real rest)
{
    real *const ray = basis, *const normal = basis + 3, *const across = basis + 6;
    normalize_direction(ray);
    normalize_direction(normal);
    for (int i = 0; i < 3; ++i) {
        const int j = (i + 1) % 3, k = (i + 2) % 3;
        across[i] = ray[j] * normal[k] - ray[k] * normal[j];
    }
    basis[9] = 0;
    basis[10] = 1;
    basis[11] = rest;
}

static real squares_of(const real *v)
{
    return v[0] * v[0] + v[1] * v[1] + v[2] * v[2];
}

#if EXPONENTIALS
static void find_exponential_basis(const real *v, real *basis)
{
    exponential_place place;
    const real opposite[3] = {-v[0], -v[1], -v[2]};
    locate_exponential(opposite, &place);
    if (place.inside) {
        set_basis(basis, 0, 0, 0);
    } else if (place.polar) {
        set_basis(basis, 1, 1, 1);
    } else if (place.flat) {
        set_basis(basis, 0, 1, place.v[2] > 0 ? 0 : 1);
    } else {
        /* The ray (rho, 1, e^rho) and the normal (1, 1 - rho, -e^-rho), without the larger of the two exponentials. */
        const real rho = place.rho, small = EXP(-magnitude(rho)), ray = rho > 0 ? small : 1, normal = rho > 0 ? 1 : small;
        basis[0] = ray * rho;
        basis[1] = ray;
        basis[2] = rho > 0 ? 1 : small;
        basis[3] = normal;
        basis[4] = normal * (1 - rho);
        basis[5] = rho > 0 ? -small : -1;
        /* d/d rho of the ray has this square at right angles to it; distance times curvature is u / (s square). */
        const real total = place.s * squares_of(basis + 3) / squares_of(basis) + place.u;
        turn_basis(basis, total > 0 ? place.u / total : 1);
    }
}
#endif

#if POWERS
static void find_power_basis(const real *v, real a, real *basis)
{
    power_place place;
    const real opposite[3] = {-v[0], -v[1], -v[2]};
    locate_power(opposite, a, &place);
    if (place.inside) {
        set_basis(basis, 0, 0, 0);
    } else if (place.polar) {
        set_basis(basis, 1, 1, 1);
    } else {
        /* The gradient of a log x + (1 - a) log y - log|z|, times the least of the three. */
        const real slope[3] = {a, 1 - a, place.p[2] < 0 ? 1 : -1};
        real least = magnitude(place.p[2]), most = least, sum = 0;
        for (int i = 0; i < 3; ++i) {
            const real entry = magnitude(place.p[i]);
            basis[i] = place.p[i];
            least = entry < least ? entry : least;
            most = larger(entry, most);
            sum += entry;
        }
        for (int i = 0; i < 3; ++i) {
            const real entry = magnitude(place.p[i]);
            basis[3 + i] = slope[i] * (entry > 0 ? least / entry : 1);
        }
        /* Along (x e^((1-a)t), y e^(-at), z) the point moves with this square at right angles to the ray. */
        const real others = most * (sum - least - most), size = squares_of(basis);
        const real square = others * others * squares_of(basis + 3) / (size == 0 ? 1 : size);
        const real curvature = place.q * a * (1 - a), total = square + curvature;
        turn_basis(basis, total > 0 ? curvature / total : 1);
    }
}
#endif

static void add_curved(longstep_finish_space *f, const real *basis, int32_t first, real p)
{
    for (int i = 0; i < 3; ++i) {
        const real weight = weight_of(basis[9 + i], p);
        if (weight == 0) continue;
        begin_direction(f);
        for (int j = 0; j < 3; ++j) add_row(f, first + j, basis[3 * i + j]);
        end_direction(f, weight);
    }
}

static void apply_curved(const real *basis, real p, real *x)
{
    real out[3] = {0, 0, 0};
    for (int i = 0; i < 3; ++i) {
        const real *const e = basis + 3 * i;
        const real part = weight_of(basis[9 + i], p) * (e[0] * x[0] + e[1] * x[1] + e[2] * x[2]);
        for (int j = 0; j < 3; ++j) out[j] += part * e[j];
    }
    for (int j = 0; j < 3; ++j) x[j] = out[j];
}

/* Exponential cones come first, then power cones. */
static void find_basis(const real *v, int32_t i, real *basis)
{
    const real *const own = v + FIRST_EXPONENTIAL + 3 * i;
#if EXPONENTIALS
    if (i < EXPONENTIALS) {
        find_exponential_basis(own, basis);
        return;
    }
#endif
#if POWERS
    find_power_basis(own, power[i - EXPONENTIALS], basis);
#endif
}
