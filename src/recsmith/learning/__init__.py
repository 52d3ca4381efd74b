"""Training of cost models and placement policies on measurements (docs/learning.md).

    costs/       cost models of fused kernels: samples to groups, baselines, the network, its training
    comm/        models of all-to-alls: exchanges, baselines, the network, its training
    kernels/     models of single kernels, and the file of a machine
    policies/    networks that place tables
    preparation, training_loop    shared by all of them

Torch is imported only by the modules that train, when a model is trained.
"""
