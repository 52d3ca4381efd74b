"""The local page and its JSON API: planning, pricing and comparing in a browser, on this machine alone.

operations.py   what may be asked, one row an operation: routes and OpenAPI are made of it
messages.py     the bodies of requests and answers
guard.py        who may ask: Host, Origin, token, session, size
sessions.py     what each client keeps here, and for how long
searches.py     planning jobs: one process each (search_process.py), heard through JSON lines
pricing.py      warm evaluators, for plans that are changed by hand
"""
