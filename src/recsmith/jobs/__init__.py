"""Local torchrun jobs: how they start (launch), what a rank runs (worker), and models that they train."""
