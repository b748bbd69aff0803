/* LDL' of [[P + sigma I, A'], [A, -1/weights]] in panels of columns that have the same rows below: for each the entries
 * among its own columns, unless there are none, then those below, both by columns and padded to whole vectors with zeros,
 * and at the end the inverse of D. The right-hand side is zero but for the unknowns, and no other part of the solution is asked for.
 * Indices are volatile to be loaded one by one: instructions that gather were measured three times as slow. */

/* g += C t for a matrix of so many columns: four at a time take g out of memory a quarter as often. */
static void add_columns(const real *restrict C, int32_t vectors, int32_t columns, const real *restrict t, real *restrict g)
{
    const int32_t r = LANES * vectors;
    int32_t c = 0;
    for (; c + 4 <= columns; c += 4, C += 4 * r)
        for (int32_t i = 0; i < r; ++i)
            g[i] += C[i] * t[c] + C[r + i] * t[c + 1] + C[2 * r + i] * t[c + 2] + C[3 * r + i] * t[c + 3];
    for (; c < columns; ++c, C += r)
        for (int32_t i = 0; i < r; ++i) g[i] += C[i] * t[c];
}

/* t = D t - C'g */
static void take_products(const real *restrict C, int32_t vectors, int32_t columns, const real *restrict D,
                          const real *restrict g, real *restrict t)
{
    const int32_t r = LANES * vectors;
    int32_t c = 0;
    for (; c + 4 <= columns; c += 4, C += 4 * r) {
        real a = 0, b = 0, d = 0, e = 0;
        for (int32_t i = 0; i < r; ++i) {
            a += C[i] * g[i];
            b += C[r + i] * g[i];
            d += C[2 * r + i] * g[i];
            e += C[3 * r + i] * g[i];
        }
        t[c] = D[c] * t[c] - a;
        t[c + 1] = D[c + 1] * t[c + 1] - b;
        t[c + 2] = D[c + 2] * t[c + 2] - d;
        t[c + 3] = D[c + 3] * t[c + 3] - e;
    }
    for (; c < columns; ++c, C += r) {
        real a = 0;
        for (int32_t i = 0; i < r; ++i) a += C[i] * g[i];
        t[c] = D[c] * t[c] - a;
    }
}

static void eliminate(const real *restrict factor, real *restrict t, real *restrict g)
{
    for (int32_t s = 0; s < PANELS; ++s) {
        const int32_t columns = panel_column[s + 1] - panel_column[s], r = panel_row[s + 1] - panel_row[s];
        const volatile index_l *restrict row = L_row + panel_row[s];
        const real *restrict L = factor + panel_value[s];
        real *restrict own = t + panel_column[s];
        if (columns == 1) {
            const real a = own[0];
            for (int32_t i = 0; i < r; ++i) t[row[i]] -= L[i] * a;
            continue;
        }
        for (int32_t c = 0; c < panel_inner[s]; ++c) {
            const int32_t from = (c + 1) / LANES, size = LANES * ((columns + LANES - 1) / LANES - from);
            const real a = own[c];
            real *restrict rest = own + LANES * from;
            for (int32_t i = 0; i < size; ++i) rest[i] -= L[i] * a;
            L += size;
        }
        if (r == 0) continue;
        const int32_t vectors = (r + LANES - 1) / LANES;
        for (int32_t i = 0; i < LANES * vectors; ++i) g[i] = 0;
        add_columns(L, vectors, columns, own, g);
        for (int32_t i = 0; i < r; ++i) t[row[i]] -= g[i];
    }
}

static void substitute(const real *restrict factor, real *restrict t, real *restrict g)
{
    for (int32_t s = PANELS - 1; s >= 0; --s) {
        const int32_t first = panel_column[s], columns = panel_column[s + 1] - first;
        const int32_t r = panel_row[s + 1] - panel_row[s], vectors = (r + LANES - 1) / LANES;
        const volatile index_l *restrict row = L_row + panel_row[s];
        const real *restrict L = factor + panel_value[s + 1] - LANES * vectors * columns;
        const real *restrict D = factor + L_SIZE + first;
        real *restrict own = t + first;
        if (columns == 1) {
            real a = D[0] * own[0], b = 0;
            L = factor + panel_value[s];
            for (int32_t i = 0; i + 1 < r; i += 2) {
                a -= L[i] * t[row[i]];
                b -= L[i + 1] * t[row[i + 1]];
            }
            if (r % 2) a -= L[r - 1] * t[row[r - 1]];
            own[0] = a + b;
            continue;
        }
        for (int32_t i = 0; i < r; ++i) g[i] = t[row[i]];
        for (int32_t i = r; i < LANES * vectors; ++i) g[i] = 0;
        take_products(L, vectors, columns, D, g, own);
        for (int32_t c = panel_inner[s] - 1; c >= 0; --c) {
            const int32_t from = (c + 1) / LANES, size = LANES * ((columns + LANES - 1) / LANES - from);
            const real *restrict rest = own + LANES * from;
            real a = 0;
            L -= size;
            for (int32_t i = 0; i < size; ++i) a += L[i] * rest[i];
            own[c] -= a;
        }
    }
}

/* t has room for the whole system, then for the rows below a panel. */
static void solve(const real *restrict factor, real *restrict x, real *restrict t)
{
    const volatile index_l *restrict place = place_t;
    for (int32_t j = 0; j < ORDER + LANES; ++j) t[j] = 0;
    for (int32_t j = 0; j < N; ++j) t[place[j]] = x[j];
    eliminate(factor, t, t + ORDER);
    substitute(factor, t, t + ORDER);
    for (int32_t j = 0; j < N; ++j) x[j] = t[place[j]];
}
