"""What a run directory says, in words and tables. This room reads files; it never runs or changes anything."""
