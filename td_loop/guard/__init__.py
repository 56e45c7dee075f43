"""The guard: a watchdog outside of the training process, that stops a run which diverges and rolls it back."""
