"""Settings: their one definition, how they are found, and the only reader of the environment."""
