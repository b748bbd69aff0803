static void ${name}(const real *restrict x, real *restrict out)
{
    for (int32_t i = 0; i < ${m}; ++i) out[i] = ${name}_value[i] * x[i];
}
