"""Settings: their definition, their sources, and the only reader of the environment."""
