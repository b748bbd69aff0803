static void ${name}(const real *restrict x, real *restrict out)
{
    for (int32_t i = 0; i < ${m}; ++i) {
        real sum = 0;
        for (int32_t j = 0; j < ${n}; ++j) sum += ${name}_value[i * ${n} + j] * x[j];
        out[i] = sum;
    }
}
