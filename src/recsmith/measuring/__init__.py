"""Measurements of embedding kernels (compute) and all-to-alls (comm): the cases, the runs, and the stored folders.

cases, planned_cases, samples, compute, summary    fused embedding kernels: cases and visits, runs, results exchanges,
comm, rank_worker    all-to-alls on local or simulated ranks, and the alpha-beta model fitted to them folder, about,
journal, parquet_parts, columns, checks    a folder of measurements on disk, and every column of a row correctness,
statistics    whether FBGEMM computes what PyTorch computes; statistics for readers of measurements
"""
