"""How one step is taken: one file an algorithm, its equations in the docstring, its methods in the order they run."""
