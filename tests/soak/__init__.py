"""Uses sessions at random for a long time, and checks that nothing grows."""
