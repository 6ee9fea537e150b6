"""`dream doctor`: what this machine will do for a training run, and what is in its way."""
