"""What a run says of the systems that it names: a noun for each, without torch."""
