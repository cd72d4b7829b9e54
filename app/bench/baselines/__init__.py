"""What specchat is compared with: REST, published CREST, fixed draft shapes, replayed answers."""
