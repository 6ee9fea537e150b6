"""What the step needs to know of the mesh: accumulation and gradient norms."""
