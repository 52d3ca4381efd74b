"""Measurements of all-to-alls between ranks, local or simulated, and the alpha-beta model fitted to them."""
