"""Ready-made families: each file is a problem with its constants and its sampler, built on the public names alone."""
