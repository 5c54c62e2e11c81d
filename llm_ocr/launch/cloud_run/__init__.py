"""Google Cloud Run: one job per stage of a launch, an execution of N tasks per submission."""
