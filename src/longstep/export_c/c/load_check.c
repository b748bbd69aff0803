    int32_t bad = 0;
    for (int32_t i = 0; i < ${size}; ++i) bad += wrong(parameter[i]);
    if (bad) return 0;
