"""What is learned: named hyperparameters, their domains, and the classical schedules."""
