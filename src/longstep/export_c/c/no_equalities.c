static void solve_normal(real *x)
{
    (void)x;
}
