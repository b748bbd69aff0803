static void ${name}(const real *restrict x, real *restrict out)
{
${rows}
}
