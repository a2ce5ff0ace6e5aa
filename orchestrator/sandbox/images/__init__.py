"""The agent that all containers have mounted, and what is on record of images that are not ours."""
