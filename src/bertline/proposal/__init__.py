"""A first configuration: what a user's texts are, and sizes that fit them, a machine and a time (`make mine`)."""
