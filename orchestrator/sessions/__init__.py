"""Sessions: lifecycle, levels, files, recovery."""
