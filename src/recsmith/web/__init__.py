"""What is looked at in a browser: the report of a plan, and the page that `recsmith serve` shows."""
