"""RunPod: a request to a serverless endpoint per share."""
