static const real *metric_of(int32_t k)
{
#if SOME_PLAIN
    return metric + plain[k] * METRIC_SIZE;
#else
    (void)k;
    return metric;
#endif
}
