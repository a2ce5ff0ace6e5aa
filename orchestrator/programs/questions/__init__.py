"""What commands in a sandbox may ask about their own session."""
