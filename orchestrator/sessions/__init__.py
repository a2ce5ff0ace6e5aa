"""Sessions: lifecycle, commands, files, recovery."""
