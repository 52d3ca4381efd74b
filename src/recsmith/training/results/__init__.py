"""What can be done with a trained model: scores on other data, predictions in one process, copies, comparisons."""
