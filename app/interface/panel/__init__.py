"""The acceptance panel: how much drafting gains, in a column or the footer."""
