"""Amazon SageMaker: training jobs."""
