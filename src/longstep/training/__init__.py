"""Finding schedules: in closed form where there is one, by gradients elsewhere."""
