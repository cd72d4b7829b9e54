"""The transcript: questions and answers, drawn as lines and scrolled."""
