"""What the kernel is asked to enforce on a command."""
