"""What a machine had alone, before it became a node of a cluster."""
