"""Criteo's click logs (Kaggle and Terabyte) as published: lines of a label, 13 counts and 26 hashed categories."""
