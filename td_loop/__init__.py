"""td_loop: an outer loop for fitted policy iteration, with the game Orbit Wars built in."""

__version__ = "0.1.0"
