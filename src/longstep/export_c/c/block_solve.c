static void solve(const real *restrict factor, real *restrict b)
{
${calls}
}
