    for (int32_t i = 0; i < ${n}; ++i) work->q[i] = parameter[${place}] / one_over_dc[i];
    for (int32_t i = 0; i < ROWS; ++i) {
        work->l[i] = bound(parameter[${first_l} + place_row[i]]) / one_over_e[i];
        work->u[i] = bound(parameter[${first_u} + place_row[i]]) / one_over_e[i];
    }
    work->outside = 0;
    work->shift = 0;
