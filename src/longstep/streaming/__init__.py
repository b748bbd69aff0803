"""Instances by the million: from files to files in constant memory, in parts that outlive a kill."""
