"""Jobs of several hosts that go on when one is lost, and take it in when it is back: one torchrun agent on each host.

rounds.py says who trains together, pings.py who answers, meeting.py brings both together in a folder that all hosts
see. rendezvous.py shows that to torchrun, agent.py is what a host runs, and rank.py what each of its ranks does.
"""
