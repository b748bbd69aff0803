"""What is solved: the data that all instances of a family share, and the map from a parameter to an instance."""
