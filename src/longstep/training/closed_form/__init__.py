"""Schedules in closed form: gradient descent on quadratics, and single steps on smooth families."""
