"""Speed and memory, each as a ratio to the peer in the same run; `make bench` runs all of it."""
