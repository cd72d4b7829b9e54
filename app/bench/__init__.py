"""Benchmarks: every claim of speed as a ratio measured in one run, with medians of paired runs."""
