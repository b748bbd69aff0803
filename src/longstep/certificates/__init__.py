"""What is promised: bounds from validation samples, worst-case rates, and performance estimation."""
