"""What requests about files say: names, ranges, patches, patterns of searches. Pure."""
