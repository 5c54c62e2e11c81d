"""Amazon SageMaker: processing jobs, and training jobs for spot machines and the largest GPUs."""
