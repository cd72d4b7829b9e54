"""The drafters: each proposes continuations for the target to verify, and none forks the loop."""
