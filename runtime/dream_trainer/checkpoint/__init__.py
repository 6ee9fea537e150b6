"""A run's state on disk: whole or not there, checked when read, readable on another mesh."""
