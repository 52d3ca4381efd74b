"""Makes samples of events (user, item, time, action): each is a target event with its user's history before it."""
