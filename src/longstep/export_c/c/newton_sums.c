
/* The linear system of a Newton step. With D the derivative of the projection onto K* at v and a proximal term p, its
 * second row gives dv from dx, and what is left is positive definite:
 *
 *     [P + pI   A'D          ] [dx]   [F_x]        W = D ((1 + p) I - D)^-1,
 *     [A        D - (1 + p) I] [dv] = [F_v]        (P + pI + A'W A) dx = F_x + A'W F_v,
 *                                                  (1 + p) dv = (W + I)(A dx - F_v).
 *
 * D has eigenvalues from 0 to 1, and so many cones have it in closed form that W is a weight for every row, and for some
 * cones a few directions with weights of their own. The matrix S lies by columns, from the diagonal down. */

/* S += the squares of the directions that wait, by their weights: four at once take S out of memory a quarter as often. */
static void add_waiting(longstep_finish_space *f)
{
    const real *restrict a = f->panel[0], *restrict b = f->panel[1], *restrict c = f->panel[2], *restrict d = f->panel[3];
    for (; f->waiting < 4; ++f->waiting) {
        memset(f->panel[f->waiting], 0, sizeof f->panel[0]);
        f->panel_weight[f->waiting] = 0;
    }
    for (int32_t j = 0; j < N; ++j) {
        const real a_j = f->panel_weight[0] * a[j], b_j = f->panel_weight[1] * b[j];
        const real c_j = f->panel_weight[2] * c[j], d_j = f->panel_weight[3] * d[j];
        real *restrict column = f->S[j];
        for (int32_t i = j; i < N; ++i) column[i] += a_j * a[i] + b_j * b[i] + c_j * c[i] + d_j * d[i];
    }
    f->waiting = 0;
}

/* Room for the next direction g = A'e, zero. */
static real *begin_direction(longstep_finish_space *f)
{
    real *const g = f->panel[f->waiting];
    for (int32_t j = 0; j < N; ++j) g[j] = 0;
    return g;
}

static void end_direction(longstep_finish_space *f, real weight)
{
    f->panel_weight[f->waiting++] = weight;
    if (f->waiting == 4) add_waiting(f);
}

/* The direction that was begun last += e A_row. */
static void add_row(longstep_finish_space *f, int32_t row, real e)
{
    real *restrict g = f->panel[f->waiting];
    for (int32_t k = row_first[row]; k < row_first[row + 1]; ++k) g[row_column[k]] += e * row_value[k];
}

/* S += weight A_row'A_row; long rows wait for others. */
static void add_square(longstep_finish_space *f, int32_t row, real weight)
{
    const int32_t first = row_first[row], last = row_first[row + 1];
    if (4 * (last - first) > N) {
        begin_direction(f);
        add_row(f, row, 1);
        end_direction(f, weight);
        return;
    }
    for (int32_t k = first; k < last; ++k) {
        real *restrict column = f->S[row_column[k]];
        const real scaled = weight * row_value[k];
        for (int32_t l = k; l < last; ++l) column[row_column[l]] += scaled * row_value[l];
    }
}
