/*
 * Written by longstep from a learned solver of
 *
 *     ${form}
 *
 * ${parameter}
 * Nothing is allocated, nothing is global but constants: all memory is in the workspace and the result.
 * Everything is in the units of the user's problem. Not for -ffast-math: infinities have a meaning here.
 */
#ifndef LONGSTEP_H
#define LONGSTEP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef ${precision} longstep_real;

${sizes}
#define LONGSTEP_LEAST_EPS  ${least_eps} /* eps_abs and eps_rel that are both less are refused */
/* C has no arrays without entries; long ones are whole cache lines. */
${lengths}

${names}
${common}
${types}
${functions}
#ifdef __cplusplus
}
#endif

#endif
