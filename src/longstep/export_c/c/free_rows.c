static void free_rows(longstep_result *r)
{
#if ANY_FREE
    real value[${count}];
    multiply_free(r->x, value);
    for (int32_t i = 0; i < ${count}; ++i) {
        r->y[place_free[i]] = 0;
        r->s[place_free[i]] = value[i];
    }
#else
    (void)r;
#endif
}
