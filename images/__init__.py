"""The images that Paddock runs, and the code that builds them."""
