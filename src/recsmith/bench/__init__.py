"""Benchmarks that anybody can run again: plans of several planners, compared by measurements."""
