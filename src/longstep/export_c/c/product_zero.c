static void ${name}(const real *restrict x, real *restrict out)
{
    (void)x;
    for (int32_t i = 0; i < ${m}; ++i) out[i] = 0;
}
