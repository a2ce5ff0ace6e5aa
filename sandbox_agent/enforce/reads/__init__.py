"""The broker: opens of a session that may read the files of its context pack and nothing else."""
