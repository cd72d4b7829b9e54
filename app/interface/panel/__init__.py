"""The acceptance panel: how much drafting gains, as a column or a footer."""
