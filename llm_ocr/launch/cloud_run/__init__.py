"""Google Cloud Run: one job per stage and hardware, an execution of N tasks per launch."""
