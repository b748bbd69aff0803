    for (int32_t i = 0; i < ROWS; ++i) work->b[i] = parameter[i] / one_over_e[i];
    for (int32_t i = 0; i < N; ++i) work->c[i] = parameter[ROWS + place_x[i]] * d_scale[i];
    work->outside = 0;
    work->shift = 0;
