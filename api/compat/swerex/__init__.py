"""The remote protocol of SWE-ReX 1.4, one session as one runtime."""
