"""The local page and its JSON API: planning, pricing and comparing in a browser, on this machine alone.

operations.py   what may be asked, one row an operation: routes and OpenAPI are made of it
requests.py     the bodies of requests, and the nouns that they name
answers.py      the bodies of answers
guard.py        who may ask: Host, Origin, token, session, size
sessions.py     what each client keeps here, and for how long
searches.py     searches for plans: one process each (search_process.py), heard through JSON lines
pricing.py      warm evaluators, for plans that are changed by hand
"""
