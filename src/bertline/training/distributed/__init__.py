"""The processes that train together, and what they exchange and share out."""
