"""What the texts claim, the commands that measure it, and whether it holds: `python -m evidence`, `make evidence`."""
