"""The page: one inspector drawn in the browser from the trace, charts, and the text around them."""
