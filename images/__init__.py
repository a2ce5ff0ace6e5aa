"""The images that Paddock runs, and what builds them."""
