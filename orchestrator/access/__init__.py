"""Who may do how much: keys, their limits, and waiting for one's turn."""
