"""Benchmarks. Every claim of speed is a ratio measured within one run, a median of paired runs."""
