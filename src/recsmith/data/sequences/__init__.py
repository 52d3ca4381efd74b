"""Events (who, what, when, and what was done) as samples: a target, and the history that its user had before it."""
