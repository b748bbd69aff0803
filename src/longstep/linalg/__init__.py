"""Linear algebra and projections. Knows no optimisation: nothing here imports the rest of longstep.

Every function acts along axis 0 and takes one vector (n,) or a stack of vectors as columns (n, N): instances
are right-hand sides of one shared matrix, which is what makes batches fast.
"""
