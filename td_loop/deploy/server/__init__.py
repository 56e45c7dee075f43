"""The HTTP server: decisions of two policies, a rule that answers for them, rewards, metrics."""
