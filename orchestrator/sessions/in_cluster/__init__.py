"""Sessions of a node in its cluster: places taken and compared, usage, and what the node has."""
