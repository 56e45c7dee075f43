"""The canary's controller: verified -> shadow -> 5 % -> linear ramp -> promoted, or rolled back."""
