"""Measurements of embedding kernels (compute) and all-to-alls (comm): what is measured, how long, and how it is stored.

compute/  fused embedding kernels: cases, samples, runs, and steady samples as arrays
comm/     all-to-alls: exchanges, runs on local or simulated ranks, and the alpha-beta model fitted to them
about, journal, parquet_parts, rows, folder, folder_lock    a folder of measurements on disk
columns   every column of a row, with its unit and meaning
intervals, rank_correlation    statistics that readers of measurements share
"""
