"""The settings that a person writes: read, checked against the schema, completed with defaults."""
