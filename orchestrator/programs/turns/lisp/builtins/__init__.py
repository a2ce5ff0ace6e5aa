"""The built-in functions: each works on values and reaches nothing else."""
