"""The local page and its JSON API: planning, pricing and comparing in a browser, on this machine alone.

operations.py      what may be asked, one row an operation: routes and OpenAPI are made of it
endpoints.py, plan_endpoints.py   what each operation does
requests.py        the bodies of requests; asked.py finds the workloads, clusters and rules that they name
answers.py         the bodies of answers
edits.py           changes of a plan by hand, and drafts of them
kept_plans.py      a plan with its card, and what keeps plans: folder.py in files, sessions.py in memory
folder_files.py    what lies where in a folder of plans, written whole or not at all, by turns
guard.py           who may ask: Host, Origin, token, session, size
sessions.py        what each client keeps here, and for how long
uploads.py         what a client sends, read as the command line reads it
searches.py        searches for plans: one process each (search_process.py), heard through JSON lines
pricing.py         warm evaluators, for plans that are changed by hand
"""
