"""Access control: API keys, their limits, and fair queueing."""
