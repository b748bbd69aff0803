    /* One by one: some compilers get a copy of constants wrong. */
    for (int32_t i = 0; i < ${count}; ++i) work->${name}[i] = ((const volatile real *)base_${name})[i];
