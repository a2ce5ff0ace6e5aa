"""Volumes: files of a key that its sessions mount by name, and that outlive all of them."""
