"""Tables on servers beside the trainers: `remote` of a run (docs/remote.md)."""
