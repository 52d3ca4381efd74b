"""What becomes of a trained model: scores on other data, predictions in one process, copies, runs side by side."""
