"""Measurements of embedding kernels (compute) and all-to-alls (comm): what is measured, how long, and how it is stored.

cases, planned_cases, samples, compute, summary    fused embedding kernels: which cases and visits, runs, what was found
exchanges, comm, rank_worker    all-to-alls on local or simulated ranks, and the alpha-beta model fitted to them
folder, about, journal, parquet_parts, columns, checks    a folder of measurements on disk, and every column of a row
correctness, statistics    whether FBGEMM computes what PyTorch does; figures that readers of measurements share
"""
