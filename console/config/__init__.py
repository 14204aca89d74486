"""What the settings are made of: environment variables, logging, signing keys."""
