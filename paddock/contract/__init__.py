"""What responses look like, one module for each resource."""
