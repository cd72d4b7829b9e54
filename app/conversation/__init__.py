"""One chat turn, headless: a message in, events out, everything kept in the history."""
