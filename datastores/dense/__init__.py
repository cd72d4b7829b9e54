"""The dense index: hidden states as keys, and the tokens that followed them."""
