"""From a configuration to what it asks for, how far that is, and what it still takes."""
