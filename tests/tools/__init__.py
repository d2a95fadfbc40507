"""Tools that only tests, pictures of the page and measurements of it need."""
