"""Local torchrun jobs: how they start, what their ranks run, and how they end."""
