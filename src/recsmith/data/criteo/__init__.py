"""Reads and writes Criteo's click logs (Kaggle, Terabyte): lines of a label, 13 counts and 26 hashed categories."""
