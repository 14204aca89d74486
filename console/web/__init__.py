"""Common parts of all pages: requests, forms, lists, URLs, the display of numbers, states and errors."""
