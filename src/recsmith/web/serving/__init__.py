"""The local page and its JSON API: planning, pricing and comparing in a browser, on this machine alone.

operations.py      all operations, one entry each; routes and OpenAPI are built from them
endpoints.py, plan_endpoints.py   what each operation does
requests.py        the bodies of requests; asked.py finds the workloads, clusters and rules that they name
answers.py         the bodies of answers
edits.py           changes of a plan by hand, and drafts of them
kept_plans.py      a plan with its card, and the stores of plans: folder.py in files, sessions.py in memory
folder_files.py    the files in a folder of plans: written whole or not at all, by one server at a time
guard.py           which requests are let in: Host, Origin, token, session, size
sessions.py        what each client keeps here, and for how long
uploads.py         files that a client sends, read as the command line reads them
searches.py        searches for plans: one process each (search_process.py), which reports in JSON lines
pricing.py         evaluators kept in memory, for plans that are changed by hand
"""
