"""What is kept of everything that happens, and the secrets that are cut out of it."""
