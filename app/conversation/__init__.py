"""One conversation turn without a screen: a question in, events out, everything stored."""
