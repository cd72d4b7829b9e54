"""A loaded model ready to answer: its drafters, the stores they draft from, what was learned."""
