"""How steps are run: plans, loops, the safeguard, stopping, batches."""
