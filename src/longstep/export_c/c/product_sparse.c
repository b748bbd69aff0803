static void ${name}(const real *restrict x, real *restrict out)
{
    for (int32_t i = 0; i < ${m}; ++i) {
        real sum = 0;
        for (int32_t j = ${name}_first[i]; j < ${name}_first[i + 1]; ++j)
            sum += ${name}_value[j] * x[${name}_column[j]];
        out[i] = sum;
    }
}
