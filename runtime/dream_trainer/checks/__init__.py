"""What can be told from the first step or before it: mesh, plan, optimizers, batches, gradients.

`TrainingParameters.startup_checks` turns all of it off. Nothing is left after the first step.
"""
