"""What a gateway answers itself: one list, one stream, one search over all nodes."""
