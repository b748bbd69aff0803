
void longstep_place_factors(const longstep_real *values)
{
    factors = values;
}
