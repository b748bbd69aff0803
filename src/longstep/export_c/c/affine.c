/* out += M p, for the rows of M that have entries. */
static void add_map(int32_t count, const index_t *row, const index_t *first, const index_t *column, const real *value,
                    const real *p, real *out)
{
    for (int32_t i = 0; i < count; ++i) {
        real sum = 0;
        for (int32_t j = (int32_t)first[i]; j < (int32_t)first[i + 1]; ++j) sum += value[j] * p[column[j]];
        out[row[i]] += sum;
    }
}
