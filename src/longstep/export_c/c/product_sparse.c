/* Indices are volatile to be loaded one by one: instructions that gather were measured four times as slow. Of two sums
 * one need not wait for the other. */
static void ${name}(const real *restrict x, real *restrict out)
{
    const volatile ${index} *restrict column = ${name}_column;
    for (int32_t i = 0; i < ${m}; ++i) {
        const int32_t last = ${name}_first[i + 1];
        int32_t j = ${name}_first[i];
        real sum = 0, other = 0;
        for (; j + 1 < last; j += 2) {
            sum += ${name}_value[j] * x[column[j]];
            other += ${name}_value[j + 1] * x[column[j + 1]];
        }
        if (j < last) sum += ${name}_value[j] * x[column[j]];
        out[i] = sum + other;
    }
}
