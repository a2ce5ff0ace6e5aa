"""CONSUME sessions: limited to the files of a context pack."""
