"""`specchat serve`: the loaded model for other programs, over HTTP, in OpenAI's forms."""
