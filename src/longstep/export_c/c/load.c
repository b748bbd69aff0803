static int load(longstep_workspace *work, const real *parameter)
{
${statements}    return ${result};
}
