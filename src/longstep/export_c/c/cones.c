/* Projections onto the cones: zero, nonnegative, second order (t first), semidefinite (lower triangle by columns,
 * off-diagonal entries times the root of two). */

/* Onto |v| <= t, without a branch on the data. */
static void project_second_order(real *restrict z, int32_t size)
{
    real square = 0;
    for (int32_t i = 1; i < size; ++i) square += z[i] * z[i];
    const real t = z[0], norm = SQRT(square);
    const real ratio = (real)0.5 * (1 + t / choose(norm == 0, 1, norm));
    const int inside = norm <= t, polar = norm <= -t;
    const real scale = choose(inside, 1, choose(polar, 0, ratio));
    z[0] = choose(inside, t, choose(polar, 0, ratio * norm));
    for (int32_t i = 1; i < size; ++i) z[i] *= scale;
}
