"""Pages for a browser: the report of a plan, and the page of `recsmith serve`."""
