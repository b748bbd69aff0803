/* Blocks of columns with rows below: b_R -= C b_J forward, x_J = M b_J - C'x_R backward (scaled: M is a diagonal).
 * Names have the numbers of columns and rows. Matrices lie by columns, padded to whole vectors. */

/* t += M x for so many columns of M, each of `size` numbers: four at a time keep the sums in registers. */
#define ADD_COLUMNS(t, M, x, size, columns)                                                                   \
    for (int i = 0; i < (columns) / 4 * 4; i += 4)                                                            \
        for (int k = 0; k < (size); ++k)                                                                      \
            t[k] += M[i * (size) + k] * x[i] + M[(i + 1) * (size) + k] * x[i + 1]                             \
                    + M[(i + 2) * (size) + k] * x[i + 2] + M[(i + 3) * (size) + k] * x[i + 3];                \
    for (int i = (columns) / 4 * 4; i < (columns); ++i)                                                       \
        for (int k = 0; k < (size); ++k) t[k] += M[i * (size) + k] * x[i];
