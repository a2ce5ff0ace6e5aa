"""The settings, by what they are about; `Settings` has them all."""
