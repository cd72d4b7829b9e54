"""`python -m app` is `specchat`."""

from app.cli import main

main()
