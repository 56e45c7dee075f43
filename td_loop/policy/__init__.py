"""A fast policy: one attention layer over a game's entities, fitted to what the search decides."""
