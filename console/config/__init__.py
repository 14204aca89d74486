"""The parts of the settings: environment variables, logging, signing keys."""
