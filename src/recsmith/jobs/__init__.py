"""Local torchrun jobs: their start (launch), the program of each rank (worker), and models to train in them."""
