"""`specchat bench`: the options and printed output of each benchmark."""
