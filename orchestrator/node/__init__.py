"""The host: what it offers, its processes, and how they are killed."""
