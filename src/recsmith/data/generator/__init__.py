"""Generated data with a known truth: Zipf-distributed ids, sessions, drift, and labels from a planted teacher."""
