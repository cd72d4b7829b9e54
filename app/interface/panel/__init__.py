"""The acceptance panel: what drafting brings, as a column or in the footer."""
