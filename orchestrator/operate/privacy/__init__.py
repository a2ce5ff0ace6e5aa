"""What is kept of people, for how long, and its erasure."""
