"""The demo's embedded default: a generated world, the text about it, and tasks that ask about it."""
