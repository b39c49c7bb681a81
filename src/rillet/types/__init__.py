"""The values of keys: encodings, iteration and checks, without replies."""
