"""Settings files: reading, validation against the schema, completion with defaults."""
