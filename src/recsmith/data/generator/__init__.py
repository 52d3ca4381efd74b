"""Generated data whose truth is known: Zipf ids, sessions, drift, and a planted teacher."""
