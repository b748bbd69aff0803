
/* For the Python wrapper: the numbers of the factors, which it reads from a file. To be called before all else. */
void longstep_place_factors(const longstep_real *values);

void longstep_place_factors(const longstep_real *values)
{
    factors = values;
}
