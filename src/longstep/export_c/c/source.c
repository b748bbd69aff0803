#include "${prefix}.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "longstep_data.h"

${algorithm}
${driver}
