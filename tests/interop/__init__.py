"""Other people's clients against our server."""
