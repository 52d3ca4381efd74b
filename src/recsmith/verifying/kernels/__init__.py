"""The kernels and all-to-alls of plans, measured beside what a cost model predicted."""
