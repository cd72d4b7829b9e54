"""What a person touches: the command line, the interface, one conversation turn, benchmarks."""
