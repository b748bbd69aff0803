"""The cones of conic programs, one file each, and their product."""
