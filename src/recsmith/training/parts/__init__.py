"""What a run brings along, part by part, and what each part refuses to go with; without torch."""
