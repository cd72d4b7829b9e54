"""The full-screen interface. Nothing else in specchat imports Textual."""
