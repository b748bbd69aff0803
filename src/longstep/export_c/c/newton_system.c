
/* S = P + pI + A'W A */
static void form_system(longstep_workspace *work, real p)
{
    longstep_finish_space *const f = &work->finish;
    real *restrict weight = work->more_rows;
    memset(f->S, 0, sizeof f->S);
    for (int32_t j = 0; j < N; ++j) {
        f->S[j][j] = p;
        for (int32_t k = lower_first[j]; k < lower_first[j + 1]; ++k) f->S[j][lower_row[k]] += lower_value[k];
    }
    f->waiting = 0;
    add_cones(work, p, weight);
    for (int32_t i = 0; i < ROWS; ++i)
        if (weight[i] != 0) add_square(f, i, weight[i]);
    if (f->waiting) add_waiting(f);
}

/* S = L L', in its place, with the inverse of L's diagonal on the diagonal; whether there is one. */
static int factorize(longstep_finish_space *f)
{
    for (int32_t j = 0; j < N; ++j) {
        real *restrict own = f->S[j];
        int32_t k = 0;
        for (; k + 4 <= j; k += 4) {
            const real *restrict a = f->S[k], *restrict b = f->S[k + 1], *restrict c = f->S[k + 2], *restrict d = f->S[k + 3];
            const real a_j = a[j], b_j = b[j], c_j = c[j], d_j = d[j];
            /* Where the problem is sparse, in an order that keeps it so, most are. */
            if (a_j == 0 && b_j == 0 && c_j == 0 && d_j == 0) continue;
            for (int32_t i = j; i < N; ++i) own[i] -= a_j * a[i] + b_j * b[i] + c_j * c[i] + d_j * d[i];
        }
        for (; k < j; ++k) {
            const real *restrict a = f->S[k];
            const real a_j = a[j];
            for (int32_t i = j; i < N; ++i) own[i] -= a_j * a[i];
        }
        /* Written so that NaN fails. */
        if (!(own[j] > 0) || wrong(own[j])) return 0;
        own[j] = 1 / SQRT(own[j]);
        for (int32_t i = j + 1; i < N; ++i) own[i] *= own[j];
    }
    return 1;
}

/* x = S^-1 x, by the factor. */
static void solve_system(const longstep_finish_space *f, real *restrict x)
{
    for (int32_t j = 0; j < N; ++j) {
        const real *restrict L = f->S[j];
        const real x_j = x[j] *= L[j];
        for (int32_t i = j + 1; i < N; ++i) x[i] -= L[i] * x_j;
    }
    for (int32_t j = N - 1; j >= 0; --j) {
        const real *restrict L = f->S[j];
        real even = 0, odd = 0;
        int32_t i = j + 1;
        for (; i + 1 < N; i += 2) {
            even += L[i] * x[i];
            odd += L[i + 1] * x[i + 1];
        }
        if (i < N) even += L[i] * x[i];
        x[j] = (x[j] - (even + odd)) * L[j];
    }
}
