"""What specchat is compared with: REST, drafts of fixed shape, recorded answers replayed."""
