"""What a CONSUME session may read: the files of its context pack, and nothing else."""
