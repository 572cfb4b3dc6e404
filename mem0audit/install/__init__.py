"""What this install is: paths with their origin, what they stand on, who holds them."""
