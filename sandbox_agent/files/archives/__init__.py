"""Trees of files as one stream, tar or zip; only file workers import this."""
