"""How good a method is on instances of a family."""
