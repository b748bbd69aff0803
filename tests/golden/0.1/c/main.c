/* An example: solve one instance.
 *
 *     ./portfolio_example [FILE [STEPS]]
 *
 * FILE has the PORTFOLIO_PARAMETERS entries of the parameter, separated by white space; without it a built-in example is
 * solved. STEPS asks for exactly so many steps. */
#include "portfolio.h"

#include <stdio.h>
#include <stdlib.h>

/* Not on the stack, which is small on microcontrollers. */
static portfolio_workspace work;
static portfolio_result result;
static portfolio_real parameter[6] = {
    0.2549999999999999, -0.05700000000000016, -0.23299999999999987, -0.25749999999999984, 0.397,
    0.39600000000000013,
};

int main(int argc, char **argv)
{
    portfolio_settings settings;
    portfolio_defaults(&settings);
    if (argc > 1) {
        FILE *file = fopen(argv[1], "r");
        if (file == NULL) {
            fprintf(stderr, "cannot read %s\n", argv[1]);
            return 2;
        }
        for (int i = 0; i < PORTFOLIO_PARAMETERS; ++i) {
            double value;
            if (fscanf(file, "%lf", &value) != 1) {
                fprintf(stderr, "%s: entry %d of %d is missing\n", argv[1], i, PORTFOLIO_PARAMETERS);
                fclose(file);
                return 2;
            }
            parameter[i] = (portfolio_real)value;
        }
        fclose(file);
    }
    if (argc > 2) settings.steps = (int32_t)atol(argv[2]);

    const portfolio_status status = portfolio_solve(&work, &settings, parameter, &result);

    printf("status %d, iterations %ld, safeguarded %d, outside %d\n", (int)status, (long)result.iterations,
           (int)result.safeguarded, (int)result.outside);
    printf("objective %.17g, primal residual %.3g, dual residual %.3g\n", (double)result.objective,
           (double)result.primal_residual, (double)result.dual_residual);
    for (int i = 0; i < PORTFOLIO_UNKNOWNS; ++i) printf("%.17g\n", (double)result.x[i]);
    return status == PORTFOLIO_BAD_INPUT || status == PORTFOLIO_BAD_TOLERANCE;
}
