"""Run many servers of one model as one engine: scheduling, windows, restarts, and poison detection."""
