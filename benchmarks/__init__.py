"""Speed and memory, each as a ratio to a peer in the same run; `make bench` runs all benchmarks."""
