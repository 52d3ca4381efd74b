"""Elastic jobs of several hosts: they continue when a host is lost, and include it again when it is back.

Each host runs one torchrun agent. rounds.py defines which hosts train together, pings.py finds which hosts answer, and
meeting.py combines both in a folder that all hosts share. rendezvous.py connects this to torchrun, agent.py is the
program of a host, and rank.py is used by each of its ranks.
"""
