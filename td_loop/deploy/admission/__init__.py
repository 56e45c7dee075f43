"""What an artefact has to pass before it gets any traffic, and the record that it did."""
