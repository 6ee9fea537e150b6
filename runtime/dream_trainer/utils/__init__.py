"""The public paths of the training script: `entrypoint`, `cli`, `modifiers`."""
