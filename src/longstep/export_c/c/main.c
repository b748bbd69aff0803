/* An example: solve one instance.
 *
 *     ./longstep_example [FILE [STEPS]]
 *
 * FILE has the LONGSTEP_PARAMETERS entries of the parameter, separated by white space; without it a built-in example is
 * solved. STEPS asks for exactly so many steps. */
#include "${prefix}.h"

#include <stdio.h>
#include <stdlib.h>

/* Not on the stack, which is small on microcontrollers. */
static longstep_workspace work;
static longstep_result result;
${example}
int main(int argc, char **argv)
{
    longstep_settings settings;
    longstep_defaults(&settings);
    if (argc > 1) {
        FILE *file = fopen(argv[1], "r");
        if (file == NULL) {
            fprintf(stderr, "cannot read %s\n", argv[1]);
            return 2;
        }
        for (int i = 0; i < LONGSTEP_PARAMETERS; ++i) {
            double value;
            if (fscanf(file, "%lf", &value) != 1) {
                fprintf(stderr, "%s: entry %d of %d is missing\n", argv[1], i, LONGSTEP_PARAMETERS);
                fclose(file);
                return 2;
            }
            parameter[i] = (longstep_real)value;
        }
        fclose(file);
    }
    if (argc > 2) settings.steps = (int32_t)atol(argv[2]);

    const longstep_status status = longstep_solve(&work, &settings, parameter, &result);

    printf("status %d, iterations %ld, safeguarded %d, outside %d\n", (int)status, (long)result.iterations,
           (int)result.safeguarded, (int)result.outside);
    printf("objective %.17g, primal residual %.3g, dual residual %.3g\n", (double)result.objective,
           (double)result.primal_residual, (double)result.dual_residual);
    for (int i = 0; i < LONGSTEP_UNKNOWNS; ++i) printf("%.17g\n", (double)result.x[i]);
    return status == LONGSTEP_BAD_INPUT || status == LONGSTEP_BAD_TOLERANCE;
}
