"""The drafters: each proposes continuations for the target to verify; none forks the loop."""
