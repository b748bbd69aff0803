static void multiply_A(const real *restrict x, real *restrict out)
{
    for (int32_t i = 0; i < ${alike}; ++i) out[i] = x[i];
    multiply_others(x, out + ${alike});
}
static void multiply_At(const real *restrict x, real *restrict out)
{
    multiply_others_t(x + ${alike}, out);
    for (int32_t i = 0; i < ${alike}; ++i) out[i] += x[i];
}
