"""`python -m app` is `specchat`."""

from app.cli.main import main

main()
