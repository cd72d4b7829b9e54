"""Every command and key of the interface, and what they do."""
