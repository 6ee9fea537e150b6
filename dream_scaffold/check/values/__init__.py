"""Evaluation of the user's source without running it."""
