"""Classes for the values of keys that are not streams: hash, set, sorted set, list, string, counter."""
