"""What sessions remember for later sessions of the same key."""
