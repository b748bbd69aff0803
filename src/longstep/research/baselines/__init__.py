"""What learned schedules are compared with: every one a `Method`, run exactly as a solver is."""
