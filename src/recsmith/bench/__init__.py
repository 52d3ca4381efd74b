"""Benchmarks that anybody can run again: what plans are worth once they are measured."""
