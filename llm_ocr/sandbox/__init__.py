"""Worker processes with limits: started as commands, killed at their deadline, replaced after a crash."""
