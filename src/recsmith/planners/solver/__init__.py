"""Every layout of a small problem, enumerated or given to CP-SAT of OR-Tools."""
