    work->shift = ${constant};
#if PARAMETER_TERM
    for (int32_t i = 0; i < ${size}; ++i) work->shift += objective_offset[i] * parameter[i];
#endif
