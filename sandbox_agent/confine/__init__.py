"""The restrictions that the kernel enforces on a command."""
