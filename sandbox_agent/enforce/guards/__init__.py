"""Guards lent to commands, and the guard in C, which most of them have."""
