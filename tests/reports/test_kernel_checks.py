"""What people read of the comparison of FBGEMM with PyTorch."""

from recsmith.measuring.compute.correctness import Agreement
from recsmith.reports.measurements import kernel_check_lines


def test_differences_beyond_rounding_are_called_wrong():
    fine = Agreement(optimizer="sgd", data_type="fp32", cases=12, outputs=1e-6, weights=2e-5)
    wrong = Agreement(optimizer="adagrad", data_type="fp16", cases=3, outputs=1e-4, weights=0.5)
    head, first, second = kernel_check_lines([fine, wrong])
    assert head.split()[:3] == ["optimizer", "weights", "cases"]
    assert first.split() == ["sgd", "fp32", "12", "1.0e-06", "2.0e-05"]
    assert second.split() == ["adagrad", "fp16", "3", "1.0e-04", "5.0e-01", "WRONG"]
