"""What the examples share: an API client, the package they work on, terminal output."""
