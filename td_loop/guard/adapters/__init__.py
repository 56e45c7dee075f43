"""Callbacks for other people's training loops. Each module needs the library that it is named after."""
