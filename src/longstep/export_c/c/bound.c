/* Bounds of this size are infinite. */
static real bound(real value)
{
    if (value >= (real)0.999e20) return (real)INFINITY;
    return value <= (real)-0.999e20 ? -(real)INFINITY : value;
}
