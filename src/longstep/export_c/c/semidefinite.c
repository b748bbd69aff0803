static void rotate(real *restrict v, real *restrict w, int32_t k, real c, real s)
{
    for (int32_t i = 0; i < k; ++i) {
        const real x = v[i], y = w[i];
        v[i] = c * x - s * y;
        w[i] = s * x + c * y;
    }
}

/* Eigenvalues (the diagonal of S in the end) and eigenvectors (the rows of V) of a symmetric matrix by cyclic Jacobi
 * rotations: quadratic convergence, small and large eigenvalues alike to full accuracy. */
static void diagonalize(real *restrict S, real *restrict V, int32_t k)
{
    real total = 0;
    for (int32_t i = 0; i < k * k; ++i) {
        V[i] = i % (k + 1) == 0;
        total += S[i] * S[i];
    }
    for (int sweep = 0; sweep < 40; ++sweep) {
        real off = 0;
        for (int32_t p = 0; p < k; ++p)
            for (int32_t q = p + 1; q < k; ++q) off += S[p * k + q] * S[p * k + q];
        /* Written so that NaN ends it. */
        if (!(off > EPSILON * EPSILON * total)) return;
        for (int32_t p = 0; p < k; ++p) {
            for (int32_t q = p + 1; q < k; ++q) {
                const real a = S[p * k + q];
                if (a == 0) continue;
                const real theta = (S[q * k + q] - S[p * k + p]) / (2 * a);
                const real t = (theta < 0 ? -1 : 1) / (magnitude(theta) + SQRT(theta * theta + 1));
                const real c = 1 / SQRT(t * t + 1), s = t * c;
                for (int32_t i = 0; i < k; ++i) {
                    const real x = S[i * k + p], y = S[i * k + q];
                    S[i * k + p] = c * x - s * y;
                    S[i * k + q] = s * x + c * y;
                }
                rotate(S + p * k, S + q * k, k, c, s);
                rotate(V + p * k, V + q * k, k, c, s);
                S[p * k + q] = S[q * k + p] = 0;
            }
        }
    }
}

static void project_semidefinite(longstep_workspace *work, real *restrict z, int32_t k)
{
    const real half = (real)0.70710678118654752440, root = (real)1.41421356237309504880;
    real *restrict S = work->matrix, *restrict V = work->vectors;
    int32_t place = 0, bad = 0;
    for (int32_t j = 0; j < k; ++j) {
        S[j * k + j] = z[place++];
        for (int32_t i = j + 1; i < k; ++i) S[i * k + j] = S[j * k + i] = z[place++] * half;
    }
    diagonalize(S, V, k);
    for (int32_t i = 0; i < place; ++i) {
        bad += wrong(z[i]);
        z[i] = 0;
    }
    for (int32_t l = 0; l < k; ++l) {
        const real value = S[l * k + l] < 0 ? 0 : S[l * k + l];
        const real *restrict v = V + l * k;
        place = 0;
        for (int32_t j = 0; j < k; ++j) {
            const real a = value * v[j], b = a * root;
            z[place++] += a * v[j];
            for (int32_t i = j + 1; i < k; ++i) z[place++] += b * v[i];
        }
    }
    if (bad) z[0] = (real)NAN;
}
