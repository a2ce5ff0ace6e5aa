"""The ways out of a sandbox and into it, and the programs that have them."""
