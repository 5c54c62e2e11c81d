"""Who does which unit, and what is done: plan, publish, resume, status."""
