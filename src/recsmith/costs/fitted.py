"""Cost model `fitted`: as `analytic`, but GPU kernels are priced by formulas fitted to measurements.

Prices were measured on one GPU, an H100, and are scaled by the figures of other GPUs (costs/fitted_kernels.py);
measurements of an H200 confirm the scaling. Links, tables in host memory and on disk, weighted features, sequences and
data_parallel copies are priced as in `analytic`, and so are all kernels of devices other than GPUs.
"""

from recsmith.costs.analytic import AnalyticCostModel, AnalyticEvaluator
from recsmith.costs.fitted_kernels import LAUNCHED, FittedKernels
from recsmith.problems import Problem


class FittedCostModel(AnalyticCostModel):
    """Seconds of kernels fitted to an H100 and scaled by the device's figures, and collectives as in `analytic`."""

    name = "fitted"
    about = "Kernels as formulas fitted to an H100 have them, scaled by the figures of the device."

    def compile(self, problem: Problem) -> AnalyticEvaluator:
        """The model for a problem; UsageError if the device lacks a figure that its kernels need."""
        return self.fitted(super().compile(problem))

    @staticmethod
    def fitted(analytic: AnalyticEvaluator) -> AnalyticEvaluator:
        """The model for the problem for which `analytic` was compiled."""
        if analytic.problem.cluster.device.kind != "cuda":
            return analytic
        kernels = analytic.kernels
        priced = FittedKernels(kernels.problem, kernels.reuse, kernels.unique, kernels.fetched)
        return analytic.with_kernels(priced, LAUNCHED)
