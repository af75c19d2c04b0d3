"""torchtitan's job files: the plan that they describe."""
