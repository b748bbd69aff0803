
/* What the derivative D of the projection onto K* at v is in the linear system: `weigh` functions give W as a weight for
 * each row and further directions, `apply` functions multiply by it. With eigenvalue d of D, W has d / (1 + p - d). */

/* d / (1 - d + p): exactly 1 / p where d is one. */
static real weight_of(real d, real p)
{
    return d / (1 - d + p);
}

/* A nonnegative row; where v is zero it is on both sides. */
static real weight_of_row(real v, real p)
{
    return v < 0 ? 0 : weight_of(v > 0 ? 1 : (real)0.5, p);
}

#if SECOND_ORDERS
/* Whether v = (t, u) is outside of cone and polar. There D has the eigenvalues 1 along (1, u/|u|), 0 along (1, -u/|u|)
 * and (1 + t/|u|)/2 otherwise, whose weight is `rows`; elsewhere that is the weight of all rows. */
static int weigh_second_order(const real *restrict v, int32_t size, real p, real *rows, real *one_over_norm)
{
    real square = 0;
    for (int32_t i = 1; i < size; ++i) square += v[i] * v[i];
    const real t = v[0], norm = SQRT(square);
    if (norm <= t || norm <= -t) {
        *rows = norm <= t ? weight_of(1, p) : 0;
        return 0;
    }
    *one_over_norm = 1 / norm;
    *rows = weight_of((real)0.5 * (1 + t / norm), p);
    return 1;
}

static void add_second_order(longstep_finish_space *f, const real *restrict v, int32_t first, int32_t size, real p,
                             real *restrict weight)
{
    real rows, one_over_norm;
    const int curved = weigh_second_order(v + first, size, p, &rows, &one_over_norm);
    for (int32_t i = curved; i < size; ++i) weight[first + i] = rows;
    if (!curved) return;
    weight[first] = 0;
    const real *const h = begin_direction(f);
    for (int32_t i = 1; i < size; ++i) add_row(f, first + i, v[first + i] * one_over_norm);
    end_direction(f, -rows);
    memcpy(begin_direction(f), h, sizeof f->panel[0]);
    add_row(f, first, 1);
    end_direction(f, (real)0.5 * weight_of(1, p));
}

static void apply_second_order(const real *restrict v, int32_t size, real p, real *restrict x)
{
    real rows, one_over_norm, across = 0;
    if (!weigh_second_order(v, size, p, &rows, &one_over_norm)) {
        for (int32_t i = 0; i < size; ++i) x[i] *= rows;
        return;
    }
    for (int32_t i = 1; i < size; ++i) across += v[i] * x[i];
    across *= one_over_norm;
    x[0] = (real)0.5 * weight_of(1, p) * (x[0] + across);
    for (int32_t i = 1; i < size; ++i) x[i] = rows * x[i] + (x[0] - rows * across) * one_over_norm * v[i];
}
#endif

#if SEMIDEFINITES
/* D multiplies entries in the basis of the eigenvectors: by 1 or 0 where both eigenvalues are positive or neither is, and
 * between. */
static real weight_of_pair(real a, real b, real p)
{
    const real more = larger(a, b), less = more == a ? b : a;
    if (!(more > 0)) return 0;
    return weight_of(less > 0 ? 1 : more / (more - less), p);
}

static void add_semidefinite(longstep_finish_space *f, const real *restrict value, const real *restrict V, int32_t first,
                             int32_t k, real p)
{
    const real root = (real)1.41421356237309504880;
    for (int32_t a = 0; a < k; ++a) {
        for (int32_t b = a; b < k; ++b) {
            const real *restrict x = V + a * k, *restrict y = V + b * k;
            const real weight = weight_of_pair(value[a], value[b], p), size = a == b ? 1 / root : 1;
            int32_t row = first;
            if (weight == 0) continue;
            begin_direction(f);
            for (int32_t j = 0; j < k; ++j) {
                add_row(f, row++, size * root * x[j] * y[j]);
                for (int32_t i = j + 1; i < k; ++i) add_row(f, row++, size * (x[i] * y[j] + x[j] * y[i]));
            }
            end_direction(f, weight);
        }
    }
}

/* out = X Y, or X Y' */
static void multiply_square(const real *restrict X, const real *restrict Y, int transposed, real *restrict out, int32_t k)
{
    const int32_t next = transposed ? 1 : k, across = transposed ? k : 1;
    for (int32_t i = 0; i < k; ++i)
        for (int32_t j = 0; j < k; ++j) {
            real sum = 0;
            for (int32_t l = 0; l < k; ++l) sum += X[i * k + l] * Y[l * next + j * across];
            out[i * k + j] = sum;
        }
}

static void apply_semidefinite(longstep_workspace *work, const real *restrict value, const real *restrict V, int32_t k,
                               real p, real *restrict x)
{
    const real half = (real)0.70710678118654752440, root = (real)1.41421356237309504880;
    real *restrict X = work->matrix, *restrict Y = work->vectors;
    int32_t row = 0;
    for (int32_t j = 0; j < k; ++j) {
        X[j * k + j] = x[row++];
        for (int32_t i = j + 1; i < k; ++i) X[i * k + j] = X[j * k + i] = x[row++] * half;
    }
    multiply_square(V, X, 0, Y, k);
    multiply_square(Y, V, 1, X, k);
    for (int32_t a = 0; a < k; ++a)
        for (int32_t b = 0; b < k; ++b) X[a * k + b] *= weight_of_pair(value[a], value[b], p);
    multiply_square(X, V, 0, Y, k);
    row = 0;
    for (int32_t j = 0; j < k; ++j) {
        for (int32_t i = j; i < k; ++i) {
            real sum = 0;
            for (int32_t a = 0; a < k; ++a) sum += V[a * k + i] * Y[a * k + j];
            x[row++] = i == j ? sum : root * sum;
        }
    }
}
#endif
