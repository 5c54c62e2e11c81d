"""RunPod: one request to a serverless endpoint per share."""
