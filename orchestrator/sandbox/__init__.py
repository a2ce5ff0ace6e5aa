"""One sandbox's container and its ways in and out."""
