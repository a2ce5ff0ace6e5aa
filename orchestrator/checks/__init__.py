"""Checks of this installation: each looks at one thing, and says how to mend it."""
