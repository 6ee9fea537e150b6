"""What the step needs to know of the mesh: accumulation, gradient norms, context, pipeline.

`pipeline.cut_model` and `pipeline.present` are for the hooks of a project.
"""
